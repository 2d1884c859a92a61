"""A group as it is placed again: mutable, while nodes are given to its pods and spares."""

from collections import Counter
from dataclasses import dataclass, field

from gkm.packing.replanning.remains import SurvivingGroup
from gkm.packing.values import Location, Spare

__all__ = ("NewGroup",)


@dataclass(slots=True)
class NewGroup:
    """A group in its domain and scope. `member` is what stood of it there, None where the group came from elsewhere.

    `ready` are spares of the former plan whose slots no pod took; `spares` those of this plan. `from_spares` are pods
    that took the slots of spares, their own or a neighbor's.
    """

    index: int
    pods: int
    domain: int
    scope: int
    place: Location
    nodes: Counter[str]
    member: SurvivingGroup | None = None
    ready: list[Spare] = field(default_factory=list)
    spares: list[Spare] = field(default_factory=list)
    from_spares: int = 0

    @property
    def need(self) -> int:
        """Return the pods without a node."""
        return self.pods - self.nodes.total()

    @property
    def changed(self) -> bool:
        """Return whether pods of the group are on other nodes than before."""
        return self.member is None or self.member.nodes != self.nodes

    def here(self) -> list[Spare]:
        """Return the spares that are ready in the domain of the group."""
        return [spare for spare in self.ready if spare.place == self.place]

    def take_spare(self, node: str) -> None:
        """Give up a spare on a node."""
        self.ready.remove(next(spare for spare in self.ready if spare.node == node))
