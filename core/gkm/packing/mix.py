"""The mix of groups that fragmentation is measured against (docs/design/calculus.md, Fragmentation)."""

from collections.abc import Sequence
from dataclasses import dataclass

from gkm.packing.values import MAX_GPUS

__all__ = ("MAX_KINDS", "MAX_WEIGHT", "GroupKind", "InvalidMixError", "checked")

MAX_KINDS = 32
MAX_WEIGHT = 10**6
"""With as many kinds as that, sums of weighted GPUs stay far below 2^63 in the largest inventory there can be."""


class InvalidMixError(ValueError):
    """The kinds of a mix mean nothing, alone or together: which, and why."""


@dataclass(frozen=True, slots=True)
class GroupKind:
    """Groups of `gpus` GPUs in pods of `pod_gpus`. `weight` is their share of all groups that users request."""

    gpus: int
    pod_gpus: int
    weight: int = 1

    def __post_init__(self) -> None:
        """Refuse groups that cannot be.

        Raises:
            InvalidMixError: which kind, and what is wrong with it.
        """
        kind = f"groups of {self.gpus!r} GPUs in pods of {self.pod_gpus!r}, weight {self.weight!r}"
        # bool is an int to Python, and NaN compares with nothing.
        if not all(type(number) is int for number in (self.gpus, self.pod_gpus, self.weight)):
            raise InvalidMixError(f"a mix cannot have {kind}: all three are whole numbers")
        if not (1 <= self.pod_gpus <= self.gpus <= MAX_GPUS and 1 <= self.weight <= MAX_WEIGHT):
            raise InvalidMixError(
                f"a mix cannot have {kind}: pods and groups have 1 to {MAX_GPUS} GPUs, a weight is 1 to {MAX_WEIGHT}"
            )
        if self.gpus % self.pod_gpus:
            raise InvalidMixError(f"a mix cannot have {kind}: the group does not divide into such pods")

    @property
    def pods(self) -> int:
        """Return the pods of a group."""
        return self.gpus // self.pod_gpus


def checked(mix: Sequence[GroupKind]) -> tuple[GroupKind, ...]:
    """Return the kinds of a mix.

    Raises:
        InvalidMixError: there are none, or too many.
    """
    if not 1 <= len(mix) <= MAX_KINDS:
        raise InvalidMixError(f"a mix has 1 to {MAX_KINDS} kinds of groups, and this one has {len(mix)}")
    return tuple(mix)
