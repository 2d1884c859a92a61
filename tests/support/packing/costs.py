"""The cost of a plan, and the order in which each policy compares its parts (docs/reference/calculus.md)."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from gkm.packing.values import Group, Location, Node, Policy, Request

ORDERS = {
    Policy.FEWEST_DOMAINS: ("elsewhere", "domains", "regions", "clusters", "free", "blocks"),
    Policy.FEWEST_BLOCKS: ("elsewhere", "blocks", "regions", "clusters", "domains", "free"),
    Policy.LEAST_WASTE: ("elsewhere", "free", "regions", "clusters", "domains", "blocks"),
}
"""Names of domains decide among plans of equal cost; no part of the cost has them."""


class Cost(NamedTuple):
    """The parts that policies compare.

    `elsewhere` counts groups with a spare outside their domain. `free` is the sum of what was free in the used domains,
    on nodes that a scope of the run takes: stranded GPUs, plus a constant.
    """

    elsewhere: int
    domains: int
    free: int
    blocks: int
    clusters: int = 1
    regions: int = 1

    def by(self, policy: Policy) -> tuple[int, ...]:
        """Return the parts in the order of a policy."""
        return tuple(getattr(self, name) for name in ORDERS[policy])

    @classmethod
    def of(cls, elsewhere: int, free: int, used: Collection[Location]) -> "Cost":
        """Return the cost of using some domains."""
        blocks, clusters, regions = (len({place[:depth] for place in used}) for depth in (3, 2, 1))
        return cls(elsewhere, len(used), free, blocks, clusters, regions)


def usable(nodes: Iterable[Node], request: Request) -> list[Node]:
    """Return the nodes that a scope of the run takes; all of them where it has none."""
    names = {ceiling.scope for ceiling in request.ceilings}
    return [node for node in nodes if not names or names & node.scopes]


def cost_of(nodes: Sequence[Node], request: Request, groups: Sequence[Group]) -> Cost:
    """Return the cost of groups, counted from where they and their spares lie."""
    used = {group.place for group in groups}
    free = sum(node.free for node in usable(nodes, request) if node.place in used)
    elsewhere = sum(any(spare.place != group.place for spare in group.spares) for group in groups)
    return Cost.of(elsewhere, free, used)
