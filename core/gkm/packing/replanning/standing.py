"""What still stands of a former plan, and what is to be placed (calculus.md, After a loss)."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from gkm.packing.domains.capacity import Capacity
from gkm.packing.values import Distance, Group, Location, Request, Spare

_DISTANCES = (Distance.NONE, Distance.REGION, Distance.CLUSTER, Distance.BLOCK, Distance.DOMAIN)


@dataclass(frozen=True, slots=True)
class Member:
    """A group of the former plan whose domain and scope are still there.

    `pods` are wanted. `nodes` has the pods that still stand, by node; `spares` those that do, the nearest first.
    `domain` and `scope` are numbers of the inventory and of the request's ceilings.
    """

    index: int
    pods: int
    domain: int
    scope: int
    nodes: Mapping[str, int]
    spares: tuple[Spare, ...] = ()
    same: bool = True

    @property
    def need(self) -> int:
        """Return the pods that must move for the group to stay in its domain."""
        return self.pods - sum(self.nodes.values())

    @property
    def untouched(self) -> bool:
        """Return whether the group is as it was."""
        return self.same and not self.need


@dataclass(frozen=True, slots=True)
class Remains:
    """Groups that stay as they are; those that may stay in their domains, pods lost or not; and what is to be placed.

    `place` are the numbers that have no place yet, `homes` those of them that may stay where they were. `count` of them
    are placed, `short` among these, which is the number of the short last group; -1 where that one is untouched, or
    all are whole. `lenient` says that spares may be lacking: something of the run stands, and no group is new.
    """

    untouched: tuple[Member, ...]
    homes: tuple[Member, ...]
    place: tuple[int, ...]
    count: int
    short: int
    lenient: bool


def remains(offer: Capacity, request: Request, former: Sequence[Group], numbers: int) -> Remains:
    """Return what remains of a former plan for a request of the size that is planned.

    `numbers` is how many groups the run has at its full size: one that is smaller has some of these numbers only.
    """
    alike = [group for group in former if group.index < numbers]
    # The lowest numbers are placed first: more than so many are never looked at.
    open_numbers = {group.index for group in alike} | set(range(min(numbers, request.groups + len(alike))))
    shorter = request.last_pods < request.group_pods
    short = _short(request, alike, numbers) if shorter else -1
    seen = _Seen(offer, request)
    members = _members(seen, request, alike, short)
    stays, others = _stays(members, request, alike, short)
    if shorter and short < 0:
        dropped = {group.index for group in alike} - stays - others
        rest = sorted(open_numbers - stays)
        short = max(dropped) if dropped else rest[request.groups - len(stays) - 1]
        members = _members(seen, request, alike, short)
    untouched = [member for member in members if member.index in stays and member.untouched]
    lenient = request.groups <= len(alike) and any(member.nodes for member in members)
    untouched = _within_ceilings(request, untouched, 0 if lenient else request.spares)
    staying = {member.index for member in untouched}
    homes = [member for member in members if member.index not in staying]
    place = tuple(sorted(open_numbers - staying))
    untouched, homes = _with_spares(seen, request, alike, untouched, homes)
    count = request.groups - len(untouched)
    return Remains(tuple(untouched), tuple(homes), place, count, -1 if short in staying else short, lenient)


def distance(place: Location, other: Location) -> Distance:
    """Return what two places share, at least."""
    return _DISTANCES[next((level for level in range(4) if place[level] != other[level]), 4)]


def _short(request: Request, former: Sequence[Group], numbers: int) -> int:
    """Return the number of the short group, -1 where that is still open: the last, or one that has the size already."""
    if request.groups == numbers:
        return numbers - 1
    gpus = request.last_pods * request.pod_gpus
    return max((group.index for group in former if group.gpus == gpus), default=-1)


def _stays(
    members: Sequence[Member], request: Request, former: Sequence[Group], short: int
) -> tuple[set[int], set[int]]:
    """Return the numbers of the groups that stay, and of those that are touched. Some are neither: they are too many.

    A smaller run has fewer groups than still stand; those with the highest numbers go.
    """
    whole = [member.index for member in members if member.untouched and member.index != short]
    most = request.groups - (request.last_pods < request.group_pods)
    stays = set(whole[:most]) | {member.index for member in members if member.untouched and member.index == short}
    return stays, {group.index for group in former} - set(whole) - {short}


def _members(seen: "_Seen", request: Request, former: Sequence[Group], short: int) -> list[Member]:
    """Return the groups whose domain and scope are there, and which of their pods stand. Whole groups come first.

    Where a node has less room than stood on it, the groups with the lowest numbers have it.
    """
    seen.forget()
    found: dict[int, Member] = {}
    for whole in (True, False):
        for group in former:
            pods = request.last_pods if group.index == short else request.group_pods
            if group.index not in found and (member := seen.member(group, pods, whole=whole)) is not None:
                found[group.index] = member
    return [found[index] for index in sorted(found)]


class _Seen:
    """The slots that are left on the nodes of an offer, as groups claim those that they stood on."""

    def __init__(self, offer: Capacity, request: Request) -> None:
        inventory = offer.inventory
        self._offer = offer
        self._request = request
        self._numbers = inventory.numbers
        self._domains = {place: number for number, place in enumerate(inventory.places)}
        # Plain lists: single numbers out of an array take ten times as long.
        self._slots = offer.node_slots.tolist()
        self._kinds = offer.node_kinds.tolist()
        self._scopes = {ceiling.scope: number for number, ceiling in enumerate(request.ceilings)}
        self._taken: Counter[str] = Counter()

    def forget(self) -> None:
        """Forget all claims."""
        self._taken.clear()

    def member(self, group: Group, pods: int, *, whole: bool) -> Member | None:
        """Return a group and claim what stands of it; None if it has no home, or is not `whole` and should be."""
        domain = self._domains.get(group.place)
        scope = self._scopes.get(group.scope) if self._request.ceilings else 0
        if domain is None or scope is None or any(gpus % self._request.pod_gpus for _, gpus in group.nodes):
            return None
        asked = {name: gpus // self._request.pod_gpus for name, gpus in sorted(group.nodes)}
        room = {name: min(count, self.room(name, group.place, scope)) for name, count in asked.items()}
        stands: dict[str, int] = {}
        for name, count in room.items():
            if kept := min(count, pods - sum(stands.values())):
                stands[name] = kept
        same = room == asked and sum(asked.values()) == pods
        if whole and not same:
            return None
        self._taken.update(stands)
        return Member(group.index, pods, domain, scope, stands, same=same)

    def room(self, name: str, place: Location, scope: int) -> int:
        """Return the slots of a node that nobody claimed; 0 if it is elsewhere than it was, or in another scope."""
        number = self._numbers.get(name)
        if number is None or self._offer.inventory.nodes[number].place != place:
            return 0
        kind = self._kinds[number]
        if kind < 0 or scope not in self._offer.kinds[kind]:
            return 0
        return int(self._slots[number]) - self._taken[name]

    def claim(self, member: Member) -> None:
        """Claim what stands of a group."""
        self._taken.update(member.nodes)

    def spares(self, member: Member, group: Group) -> Iterator[Spare]:
        """Yield the spares of a group that stand, the nearest first, and claim them."""
        here = self._offer.inventory.places[member.domain]
        # How near they are is worked out again: the former plan may say anything.
        ready = [replace(spare, distance=distance(here, spare.place)) for spare in group.spares]
        for spare in sorted(ready, key=lambda spare: -_DISTANCES.index(spare.distance)):
            far = spare.place != here
            if spare.gpus != self._request.pod_gpus or (far and not self._request.may_spread):
                continue
            if self.room(spare.node, spare.place, member.scope) > 0:
                self._taken[spare.node] += 1
                yield spare


def _with_spares(
    seen: "_Seen", request: Request, former: Sequence[Group], untouched: Sequence[Member], homes: Sequence[Member]
) -> tuple[list[Member], list[Member]]:
    """Return the groups with those of their spares that stand beside all pods that do."""
    seen.forget()
    groups = {group.index: group for group in former}
    for member in (*untouched, *homes):
        seen.claim(member)

    def with_spares(members: Sequence[Member]) -> list[Member]:
        return [
            replace(member, spares=tuple(islice(seen.spares(member, groups[member.index]), request.spares)))
            for member in members
        ]

    return with_spares(untouched), with_spares(homes)


def _within_ceilings(request: Request, untouched: Sequence[Member], spares: int) -> list[Member]:
    """Return the groups without those of scopes that give too little for them all: these are chosen among again."""
    given: Counter[int] = Counter()
    for member in untouched:
        given[member.scope] += member.pods + spares
    least = [ceiling.gpus // request.pod_gpus for ceiling in request.ceilings]
    return [member for member in untouched if not least or given[member.scope] <= least[member.scope]]
