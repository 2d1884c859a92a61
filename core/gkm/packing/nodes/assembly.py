"""Assemble a plan: number the groups and choose the nodes of every pod and spare, given the groups of each domain.

Groups are numbered by place, then by scope; the short last group is the last, wherever it is. Where spares leave, they
belong to the groups with the highest numbers in their domain.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.selection import Chosen
from gkm.packing.nodes.demands import GroupDemand, GroupNodes, free_nodes
from gkm.packing.nodes.guests import Departure, Guests, assign_guests, guest_spares, hosted_demands
from gkm.packing.nodes.layout import Layouts
from gkm.packing.values import Distance, Group, Request, Share, Spare

_Cell = tuple[int, int]
"""A domain and a scope."""


@dataclass(slots=True)
class _Part:
    """Groups of one scope in one domain: their numbers, their pods, the spares that stay, and those that may leave.

    `guests` says where the spares are that left.
    """

    domain: int
    scope: int
    indices: list[int]
    pods: list[int]
    stay: int
    leave: int
    guests: list[Guests] = field(default_factory=list)

    def spares_at_home(self, most: int) -> list[int]:
        """Return how many spares of each group stay, `most` for a group: spares of the last groups leave."""
        return [min(most, max(0, self.stay - number * most)) for number in range(len(self.indices))]


def assemble(capacity: Capacity, request: Request, chosen: Sequence[Chosen]) -> tuple[Group, ...]:
    """Return the groups of a plan with their nodes, sorted by index; the chosen domains must have enough slots."""
    # 1. The groups of each scope in each domain are a part, with the spares that must stay or may leave.
    # 2. Spares that leave get domains (`guests`); spares of the last groups of a part leave.
    # 3. Each domain is laid out with its groups and guests (`layout`).
    # 4. Groups take their nodes and spares, in the order of their index.
    parts = list(_parts(capacity, request, chosen))
    if any(part.leave for part in parts):
        _place_guests(capacity, parts)
    of_groups, of_guests = _laid_out(capacity, _demands(parts, request.spares))
    gpus, names = request.pod_gpus, request.scope_names
    groups = []
    for part in parts:
        place = capacity.inventory.places[part.domain]
        leaving = iter(guest_spares(capacity, part.scope, part.guests, of_guests))
        for index, pods, count in zip(part.indices, part.pods, part.spares_at_home(request.spares), strict=True):
            nodes = next(of_groups[part.domain, part.scope])
            shares = tuple([Share(node, number * gpus) for node, number in sorted(nodes.pods)])
            spares = [Spare(node, gpus, place, Distance.DOMAIN) for node in nodes.spares]
            spares += islice(leaving, request.spares - count)
            groups.append(Group(index, pods * gpus, place, names[part.scope], shares, tuple(spares)))
    return tuple(sorted(groups, key=lambda group: group.index))


def _parts(capacity: Capacity, request: Request, chosen: Sequence[Chosen]) -> Iterator[_Part]:
    following = 0
    for item in chosen:
        for scope, count in enumerate(item.groups):
            if not count:
                continue
            short = int(scope == item.short)
            pods = [request.group_pods] * (count - short) + [request.last_pods] * short
            indices = [*range(following, following + count - short), *[request.groups - 1] * short]
            following += count - short
            spares = count * request.spares
            if item.away:
                leave = item.away[scope] * request.spares
            else:
                row = capacity.slots[item.domain].tolist() if spares else []
                slots = sum(offered for kind, offered in zip(capacity.kinds, row, strict=False) if scope in kind)
                leave = min(spares, max(0, sum(pods) + spares - slots))
            yield _Part(item.domain, scope, indices, pods, spares - leave, leave)


def _place_guests(capacity: Capacity, parts: Sequence[_Part]) -> None:
    """Give the spares that may leave their domains; those that find a slot at home stay."""
    stays: dict[int, dict[int, int]] = {}
    for part in parts:
        stays.setdefault(part.domain, {})[part.scope] = sum(part.pods) + part.stay
    placed = assign_guests(capacity, stays, [Departure(part.domain, part.scope, part.leave) for part in parts])
    for part, guests in zip(parts, placed, strict=True):
        if lacking := part.leave - sum(guest.spares for guest in guests):
            raise AssertionError(f"{lacking} spares find no slot, though the choice of domains fits")
        part.stay += sum(guest.spares for guest in guests if guest.distance is Distance.DOMAIN)
        part.guests = [guest for guest in guests if guest.distance is not Distance.DOMAIN]


def _demands(parts: Sequence[_Part], spares: int) -> dict[int, list[GroupDemand]]:
    """Return what is to be placed in every domain: groups in their order, then spares of groups elsewhere, by scope."""
    found: dict[int, list[GroupDemand]] = {}
    for part in parts:
        each = zip(part.pods, part.spares_at_home(spares), strict=True)
        found.setdefault(part.domain, []).extend([GroupDemand(pods, count, part.scope) for pods, count in each])
    for domain, hosted in hosted_demands((part.scope, part.guests) for part in parts).items():
        found.setdefault(domain, []).extend(hosted)
    return found


def _laid_out(
    capacity: Capacity, demands: Mapping[int, Sequence[GroupDemand]]
) -> tuple[dict[_Cell, Iterator[GroupNodes]], dict[_Cell, Iterator[str]]]:
    """Return by domain and scope the nodes of its groups, in their order, and of spares of groups elsewhere."""
    layouts = Layouts()
    of_groups: dict[_Cell, list[GroupNodes]] = {}
    of_guests: dict[_Cell, Iterator[str]] = {}
    for domain, groups in demands.items():
        placed = layouts.lay_out(free_nodes(capacity, domain, frozenset(group.scope for group in groups)), groups)
        for group, nodes in zip(groups, placed, strict=True):
            if group.pods:
                of_groups.setdefault((domain, group.scope), []).append(nodes)
            else:
                of_guests[domain, group.scope] = iter(nodes.spares)
    return {cell: iter(some) for cell, some in of_groups.items()}, of_guests
