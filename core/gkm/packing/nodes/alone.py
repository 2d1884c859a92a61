"""Groups of a domain whose nodes have room for one pod each: the nodes are taken in order, and nothing is to be tried.

It is what `inside` comes to there: every manner of it takes one node after another, no group has part of a node, and
no spare can be beside its own group. Most runs take whole nodes, so most domains are laid out here.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

from gkm.packing.domains.capacity import Capacity
from gkm.packing.nodes.seating import Seated, Wanted


def nodes_alone(capacity: Capacity, domain: int) -> list[str] | None:
    """Return the nodes of a domain that have a slot, the tightest first; None if one has several.

    Whatever scope takes them, or none: this is for runs of one scope at most.
    """
    members = capacity.inventory.in_domain(domain)
    slots = capacity.node_slots[members.start : members.stop].tolist()
    if max(slots) > 1:
        return None
    nodes = capacity.inventory.nodes[members.start : members.stop]
    return [name for _, name in sorted([(node.free, node.name) for node, one in zip(nodes, slots, strict=True) if one])]


def lay_out_alone(names: Sequence[str], groups: Iterable[Wanted]) -> tuple[Seated, ...]:
    """Return where the groups go, and after all of them their spares. The nodes must be enough."""
    groups = list(groups)
    pods = iter(names)
    taken = [tuple([(name, 1) for name in islice(pods, group.pods)]) for group in groups]
    return tuple([Seated(own, tuple(islice(pods, group.spares))) for own, group in zip(taken, groups, strict=True)])
