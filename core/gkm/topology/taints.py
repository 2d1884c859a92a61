"""Taints and tolerations, as the scheduler matches them (Kubernetes, "Taints and Tolerations")."""

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
        """Return the taint in the form of kubectl."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Toleration(Struct, frozen=True, gc=False):
    """A toleration of a pod. An empty effect matches every effect; an empty key with `Exists` every taint."""

    key: _Text = ""
    operator: _Text = "Equal"
    value: _Text = ""
    effect: _Text = ""

    def tolerates(self, taint: Taint) -> bool:
        """Return whether the toleration matches a taint. An unknown operator matches none."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.operator == "Exists":
            return self.key in ("", taint.key)
        return self.operator in ("", "Equal") and self.key == taint.key and self.value == taint.value


DEFAULT_TOLERATIONS = (Toleration(key="nvidia.com/gpu", operator="Exists"),)
"""The tolerations of a run that names none: the taint that repels other pods from GPU nodes."""


def untolerated(taints: Sequence[Taint], tolerations: Iterable[Toleration]) -> Taint | None:
    """Return the first taint that repels a pod with these tolerations, None without one."""
    for taint in taints:
        if taint.effect in _BLOCKING_EFFECTS and not any(each.tolerates(taint) for each in tolerations):
            return taint
    return None
