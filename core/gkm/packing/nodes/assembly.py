"""From how many groups each domain takes to the nodes of every pod and spare.

Groups are numbered by place, then by scope; the short last group is the last, wherever it is. Where spares leave, they
are those of the groups with the highest numbers in their domain.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.selection import Chosen
from gkm.packing.nodes.demands import GroupDemand, GroupNodes, free_nodes
from gkm.packing.nodes.guests import Departure, Guests, assign_guests
from gkm.packing.nodes.layout import Layouts
from gkm.packing.values import Distance, Group, Request, Share, Spare


class _Part(NamedTuple):
    """Groups of one scope in one domain: their numbers, their pods, and the spares that must stay or may leave."""

    domain: int
    scope: int
    indices: list[int]
    pods: list[int]
    stay: int
    leave: int


def assemble(capacity: Capacity, request: Request, chosen: Sequence[Chosen]) -> tuple[Group, ...]:
    """Return the groups in the order of their index. What is chosen must fit."""
    # 1. The groups of each scope in each domain are a part, with the spares that must stay or may leave.
    # 2. Spares that leave get domains (`guests`); those of the last groups of a part leave.
    # 3. Each domain is laid out with its groups and guests (`layout`).
    # 4. Groups take their nodes and spares, in the order of their index.
    parts = list(_parts(capacity, request, chosen))
    guests = _guests(capacity, parts)
    home = []
    for part, some in zip(parts, guests, strict=True):
        stay = part.stay + sum(guest.spares for guest in some if guest.distance is Distance.DOMAIN)
        # The spares of the last groups leave.
        home.append(
            [min(request.spares, max(0, stay - number * request.spares)) for number in range(len(part.indices))]
        )
    laid_out = _laid_out(capacity, _demands(parts, home, guests))
    gpus, places, names = request.pod_gpus, capacity.inventory.places, request.scope_names
    groups = []
    for part, counts, some in zip(parts, home, guests, strict=True):
        far = [
            Spare(node, gpus, places[guest.domain], guest.distance)
            for guest in some
            if guest.distance is not Distance.DOMAIN
            for node in islice(laid_out.guests[guest.domain, part.scope], guest.spares)
        ]
        place, leaving = places[part.domain], iter(far)
        for index, pods, count in zip(part.indices, part.pods, counts, strict=True):
            nodes = next(laid_out.groups[part.domain, part.scope])
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


def _guests(capacity: Capacity, parts: Sequence[_Part]) -> list[list[Guests]]:
    """Return for each part where its spares are that may leave."""
    if not any(part.leave for part in parts):
        return [[] for _ in parts]
    stays: dict[int, dict[int, int]] = {}
    for part in parts:
        stays.setdefault(part.domain, {})[part.scope] = sum(part.pods) + part.stay
    placed = assign_guests(capacity, stays, [Departure(part.domain, part.scope, part.leave) for part in parts])
    lacking = sum(part.leave for part in parts) - sum(guest.spares for some in placed for guest in some)
    if lacking:
        raise AssertionError(f"{lacking} spares find no slot, though the choice of domains fits")
    return placed


def _demands(
    parts: Sequence[_Part], home: Sequence[Sequence[int]], guests: Sequence[Sequence[Guests]]
) -> dict[int, list[GroupDemand]]:
    """Return what every domain is asked for: groups in their order, then spares of groups elsewhere, by scope."""
    found: dict[int, list[GroupDemand]] = {}
    hosted: Counter[tuple[int, int]] = Counter()
    for part, counts, some in zip(parts, home, guests, strict=True):
        found.setdefault(part.domain, []).extend(
            [GroupDemand(pods, count, part.scope) for pods, count in zip(part.pods, counts, strict=True)]
        )
        for guest in some:
            if guest.distance is not Distance.DOMAIN:
                hosted[guest.domain, part.scope] += guest.spares
    for (domain, scope), count in sorted(hosted.items()):
        found.setdefault(domain, []).append(GroupDemand(0, count, scope))
    return found


class _LaidOut(NamedTuple):
    """By domain and scope: the nodes of its groups, in their order, and of spares of groups elsewhere."""

    groups: dict[tuple[int, int], Iterator[GroupNodes]]
    guests: dict[tuple[int, int], Iterator[str]]


def _laid_out(capacity: Capacity, demands: Mapping[int, Sequence[GroupDemand]]) -> _LaidOut:
    layouts = Layouts()
    found = _LaidOut({}, {})
    for domain, groups in demands.items():
        placed = layouts.lay_out(free_nodes(capacity, domain, frozenset(group.scope for group in groups)), groups)
        by_scope: dict[int, list[GroupNodes]] = {}
        for group, nodes in zip(groups, placed, strict=True):
            if group.pods:
                by_scope.setdefault(group.scope, []).append(nodes)
            else:
                found.guests[domain, group.scope] = iter(nodes.spares)
        found.groups.update({(domain, scope): iter(some) for scope, some in by_scope.items()})
    return found
