"""On which nodes the pods are of groups that stay in their domain with pods lost, and of those that come to it.

A pod that is lost goes to a spare of its group, else to a free slot, else to the spare of a neighbour: spares before
moves. Pods that stand stay; only where scopes share nodes may one have to make room.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.choosing import Chosen
from gkm.packing.nodes.dealing import Deal
from gkm.packing.nodes.inside import Seat, Wanted, lay_out
from gkm.packing.replanning.standing import Member, Remains
from gkm.packing.values import Location, Request

_POD, _SPARE, _FREE = "pod", "spare", "free"


@dataclass(frozen=True, slots=True)
class Seated:
    """A group in a domain and a scope, its pods by node. `member` is what stood of it, None where it came from afar."""

    index: int
    domain: int
    scope: int
    nodes: Mapping[str, int]
    member: Member | None
    from_spares: int = 0


class _Slot(NamedTuple):
    """Slots of a node: free, or those on which a pod or a spare of a group stood."""

    node: str
    role: str
    owner: int


def seat_again(
    left: Capacity, request: Request, what: Remains, chosen: Sequence[Chosen]
) -> tuple[list[Seated], Counter[tuple[int, str]]]:
    """Return the groups that were to be placed, in the order of their numbers, and the spares that pods took.

    Those are pairs of the group that the spare stood ready for, and its node. `left` is what untouched groups leave.
    """
    staying = {(item.domain, scope): _staying(what, item, scope) for item, scope in _parts(chosen)}
    kept = {member.index for members in staying.values() for member in members}
    pods = {index: request.last_pods if index == what.short else request.group_pods for index in what.place}
    waiting = iter([index for index in what.place if index not in kept and index != what.short])
    ready: dict[Location, list[_Slot]] = {}
    for member in (*what.untouched, *(member for members in staying.values() for member in members)):
        for spare in member.spares:
            ready.setdefault(spare.place, []).append(_Slot(spare.node, _SPARE, member.index))
    found: list[Seated] = []
    used: Counter[tuple[int, str]] = Counter()
    for item in chosen:
        coming: dict[int, list[int]] = {}
        here: list[Member] = []
        for scope, count in enumerate(item.groups):
            members = staying.get((item.domain, scope), [])
            here += members
            short = item.short == scope and what.short not in kept
            new = [next(waiting) for _ in range(count - len(members) - short)] + [what.short] * short
            if new:
                coming[scope] = new
        room = _Room(left, item.domain, here, ready.get(left.inventory.places[item.domain], ()))
        groups, given_up = room.stay(here)
        found += groups
        used.update(given_up)
        for scope, numbers, nodes in room.come(coming, pods, request.spares):
            found += [
                Seated(index, item.domain, scope, dict(shares), None)
                for index, shares in zip(numbers, nodes, strict=True)
            ]
    return sorted(found, key=lambda seated: seated.index), used


def _parts(chosen: Sequence[Chosen]) -> Iterable[tuple[Chosen, int]]:
    return ((item, scope) for item in chosen for scope, count in enumerate(item.groups) if count)


def _staying(what: Remains, item: Chosen, scope: int) -> list[Member]:
    """Return the groups that stay in a domain: those of which the fewest pods must move, then the lowest numbers."""
    here = [member for member in what.homes if (member.domain, member.scope) == (item.domain, scope)]
    short = [member for member in here if member.index == what.short and item.short == scope]
    whole = sorted((member.need, member.index) for member in here if member.index != what.short)
    stays = {index for _, index in whole[: item.groups[scope] - (item.short == scope)]}
    return [member for member in here if member.index in stays] + short


class _Room:
    """The slots of a domain, and who stood on them."""

    def __init__(self, left: Capacity, domain: int, staying: Sequence[Member], ready: Sequence[_Slot]) -> None:
        self._left = left
        self._kinds: dict[str, frozenset[int]] = {}
        self._free: Counter[str] = Counter()
        for number in left.inventory.in_domain(domain):
            if slots := int(left.node_slots[number]):
                name = left.inventory.nodes[number].name
                self._kinds[name] = left.kinds[int(left.node_kinds[number])]
                self._free[name] = slots
        self._rest = {
            left.inventory.nodes[number].name: left.inventory.nodes[number].free % left.pod_gpus
            for number in left.inventory.in_domain(domain)
        }
        self._slots: Counter[_Slot] = Counter()
        for member in staying:
            for name, pods in member.nodes.items():
                self._slots[_Slot(name, _POD, member.index)] += pods
                self._free[name] -= pods
        for slot in ready:
            if slot.node in self._kinds:
                self._slots[slot] += 1
                self._free[slot.node] -= 1
        for name, slots in self._free.items():
            if slots > 0:
                self._slots[_Slot(name, _FREE, -1)] = slots

    def stay(self, members: Sequence[Member]) -> tuple[list[Seated], Counter[tuple[int, str]]]:
        """Return the groups with nodes for all of their pods, and the spares that these took."""
        scopes = {member.index: member.scope for member in members}
        nodes: dict[int, Counter[str]] = {member.index: Counter() for member in members}
        if len(set(scopes.values())) == 1:
            # Where one scope has them all, nobody ever makes room for another: what stands need not be dealt.
            self._slots = Counter({slot: count for slot, count in self._slots.items() if slot.role != _POD})
            nodes = {member.index: Counter(member.nodes) for member in members}
        deal: Deal[int, _Slot] = Deal(self._slots, lambda index, slot: self._order(index, scopes[index], slot))
        for member in members:
            # Pods that stand are dealt first, so that nobody takes their slots who can do without.
            deal.give(member.index, member.pods - member.need - nodes[member.index].total())
        for member in members:
            if not deal.give(member.index, member.need):
                raise AssertionError(f"group {member.index} was to stay in a domain that has no room for it")
        self._slots = Counter(deal.free)
        spares: Counter[int] = Counter()
        used: Counter[tuple[int, str]] = Counter()
        for (index, slot), pods in deal.given.items():
            if pods:
                nodes[index][slot.node] += pods
                if slot.role == _SPARE:
                    spares[index] += pods
                    used[slot.owner, slot.node] += pods
        seated = [
            Seated(member.index, member.domain, member.scope, nodes[member.index], member, spares[member.index])
            for member in members
        ]
        return seated, used

    def come(
        self, coming: Mapping[int, Sequence[int]], pods: Mapping[int, int], spares: int
    ) -> Iterable[tuple[int, Sequence[int], list[tuple[tuple[str, int], ...]]]]:
        """Yield scope, numbers and nodes of the groups that come from elsewhere."""
        for scope, seats in self._seats({scope: sum(pods[index] for index in new) for scope, new in coming.items()}):
            sizes = [pods[index] for index in coming[scope]]
            roomy = sum(seat.slots for seat in seats) >= sum(sizes) + len(sizes) * spares
            layout = lay_out(seats, [Wanted(size, spares if roomy else 0) for size in sizes])
            yield scope, coming[scope], [seated.pods for seated in layout.groups]

    def _seats(self, asked: Mapping[int, int]) -> Iterable[tuple[int, list[Seat]]]:
        """Yield the nodes for each scope that asks for slots: free ones, those of spares where these are too few."""
        if len(asked) == 1:
            ((scope, count),) = asked.items()
            free, all_of_it = (
                Counter(
                    {
                        name: sum(
                            slots for slot, slots in self._slots.items() if slot.node == name and roles(slot.role)
                        )
                        for name, kind in self._kinds.items()
                        if scope in kind
                    }
                )
                for roles in (lambda role: role == _FREE, lambda _: True)
            )
            yield scope, self._as_seats(free if free.total() >= count else all_of_it)
            return
        deal: Deal[int, _Slot] = Deal(self._slots, lambda scope, slot: self._order(-1, scope, slot))
        for scope, count in sorted(asked.items()):
            if not deal.give(scope, count):
                raise AssertionError(f"scope {scope} was to have groups in a domain that has no room for them")
        for scope in sorted(asked):
            given: Counter[str] = Counter()
            for (want, slot), slots in deal.given.items():
                if want == scope:
                    given[slot.node] += slots
            yield scope, self._as_seats(given)

    def _as_seats(self, slots: Mapping[str, int]) -> list[Seat]:
        return [Seat(name, count, self._rest[name]) for name, count in sorted(slots.items()) if count]

    def _order(self, index: int, scope: int, slot: _Slot) -> tuple[object, ...] | None:
        """Return how gladly a group takes a slot: its own first, then free ones, the tightest node, then of others."""
        if scope not in self._kinds[slot.node]:
            return None
        own = slot.owner == index
        rank = {_POD: 0 if own else 4, _SPARE: 1 if own else 3, _FREE: 2}[slot.role]
        return rank, -slot.owner, self._free[slot.node], slot.node
