"""Which taints keep a pod away, as the scheduler decides it (Kubernetes, "Taints and Tolerations")."""

from collections.abc import Iterable, Sequence
from typing import Annotated

from msgspec import Meta, Struct

_Text = Annotated[str, Meta(max_length=317)]
_BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")


class Taint(Struct, frozen=True, gc=False):
    """A taint of a node."""

    key: _Text
    effect: _Text
    value: _Text = ""

    def __str__(self) -> str:
        """Return it as kubectl writes it."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Toleration(Struct, frozen=True, gc=False):
    """What a pod puts up with. An empty effect means every effect; an empty key with `Exists` every taint."""

    key: _Text = ""
    operator: _Text = "Equal"
    value: _Text = ""
    effect: _Text = ""

    def tolerates(self, taint: Taint) -> bool:
        """Return whether the taint is put up with. Operators that are not known put up with nothing."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.operator == "Exists":
            return self.key in ("", taint.key)
        return self.operator in ("", "Equal") and self.key == taint.key and self.value == taint.value


DEFAULT_TOLERATIONS = (Toleration(key="nvidia.com/gpu", operator="Exists"),)
"""Of a run that names none: the taint that keeps other pods off GPU nodes."""


def untolerated(taints: Sequence[Taint], tolerations: Iterable[Toleration]) -> Taint | None:
    """Return the first taint that keeps a pod with these tolerations away, None where it may come."""
    for taint in taints:
        if taint.effect not in _BLOCKING_EFFECTS:
            continue
        for toleration in tolerations:
            if toleration.tolerates(taint):
                break
        else:
            return taint
    return None
