"""Which nodes of a domain each scope's groups may take: nodes of several scopes are dealt out among them."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from gkm.packing.domains.capacity import Capacity
from gkm.packing.nodes.dealing import Deal
from gkm.packing.nodes.inside import Seat

Scopes = frozenset[int]
Want = TypeVar("Want")


def seats_by_scope(capacity: Capacity, domain: int, wanted: Mapping[int, int]) -> dict[int, list[Seat]]:
    """Return the nodes for each scope that wants slots in a domain, at least as many slots as it wants.

    Where only one scope does, it gets all nodes that it takes. The slots must be enough for all together.
    """
    by_kind = seats_by_kind(capacity, domain)
    slots = {kind: sum(seat.slots for seat in seats) for kind, seats in by_kind.items()}
    dealt = _dealt(slots, wanted) if len(wanted) > 1 else {}
    found: dict[int, list[Seat]] = {scope: [] for scope in wanted}
    for kind, seats in by_kind.items():
        takers = [scope for scope in sorted(wanted) if scope in kind]
        if takers:
            # What nobody wants goes to the last taker, for its spares to choose from.
            parts = [(scope, dealt.get((scope, kind), 0)) for scope in takers[:-1]]
            parts.append((takers[-1], slots[kind] - sum(count for _, count in parts)))
            split(seats, parts, found)
    return found


def _dealt(slots: Mapping[Scopes, int], wanted: Mapping[int, int]) -> Mapping[tuple[int, Scopes], int]:
    deal: Deal[int, Scopes] = Deal(slots, lambda scope, kind: (len(kind), sorted(kind)) if scope in kind else None)
    for scope in sorted(wanted):
        if not deal.give(scope, wanted[scope]):
            raise ValueError(f"scope {scope} wants more slots than its nodes have")
    return deal.given


def seats_by_kind(capacity: Capacity, domain: int) -> dict[Scopes, list[Seat]]:
    """Return the nodes of a domain that have slots, by the scopes that take them."""
    found: dict[Scopes, list[Seat]] = {}
    members = capacity.inventory.in_domain(domain)
    here = slice(members.start, members.stop)
    slots, kinds = capacity.node_slots[here].tolist(), capacity.node_kinds[here].tolist()
    for number, count, kind in zip(members, slots, kinds, strict=True):
        if count:
            node = capacity.inventory.nodes[number]
            seat = Seat(node.name, count, node.free - count * capacity.pod_gpus)
            found.setdefault(capacity.kinds[kind], []).append(seat)
    return found


def split(seats: Sequence[Seat], parts: Sequence[tuple[Want, int]], found: Mapping[Want, list[Seat]]) -> None:
    """Give nodes to each of some takers, whole nodes as far as can be. `parts` are (taker, slots)."""
    if len(parts) == 1:
        found[parts[0][0]] += seats
        return
    waiting = sorted(seats, key=lambda seat: (-seat.slots, seat.rest, seat.name))
    for scope, count in parts:
        left = count
        while left:
            seat = next((seat for seat in waiting if seat.slots <= left), waiting[-1])
            waiting.remove(seat)
            taken = min(left, seat.slots)
            found[scope].append(seat._replace(slots=taken))
            if taken < seat.slots:
                waiting.append(seat._replace(slots=seat.slots - taken))
            left -= taken
