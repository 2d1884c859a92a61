"""Find the untouched groups of the former plan, and the pods of the others that keep their nodes (calculus.md).

Pure.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from gkm.packing.domains.capacity import Capacity
from gkm.packing.nodes.guests import distance_between
from gkm.packing.values import Distance, Group, Location, Request, Spare

_NEAREST_FIRST = list(Distance)


@dataclass(frozen=True, slots=True)
class SurvivingGroup:
    """A group of the former plan whose domain and scope still exist.

    `pods` is its size now. `nodes` has the pods that still have their slot, by node; `spares` those that do, the
    nearest first. `domain` and `scope` are numbers of the inventory and of the request's ceilings. An `untouched` one
    has the size that it had, and all its slots.
    """

    index: int
    pods: int
    domain: int
    scope: int
    nodes: Mapping[str, int]
    untouched: bool
    spares: tuple[Spare, ...] = ()


@dataclass(frozen=True, slots=True)
class SurvivingPlan:
    """The remains of a run's former plan: untouched groups, groups that may stay, and the numbers of all others.

    `short` is the number of the short last group, -1 where all are whole. `open_numbers` are all numbers of groups that
    are not `untouched`; a smaller run leaves the last of them out. `lenient` says that spares may be lacking: something
    of the run stands, and no group is new.
    """

    untouched: tuple[SurvivingGroup, ...]
    touched: tuple[SurvivingGroup, ...]
    open_numbers: tuple[int, ...]
    short: int
    lenient: bool

    def with_released(self, members: Sequence[SurvivingGroup]) -> "SurvivingPlan":
        """Return the same remains, but let these undamaged groups move."""
        indexes = {member.index for member in members}
        return replace(
            self,
            untouched=tuple(member for member in self.untouched if member.index not in indexes),
            touched=tuple(sorted((*self.touched, *members), key=lambda member: member.index)),
            open_numbers=tuple(sorted({*self.open_numbers, *indexes})),
        )


def surviving_plan(offer: Capacity, request: Request, former: Sequence[Group], numbers: int) -> SurvivingPlan:
    """Return the remains of the former plan for a request of the planned size.

    `numbers` is how many groups the run has at its full size: a smaller run has only some of these numbers.
    """
    # 1. Groups claim the slots that they had, whole ones first; a smaller run drops the highest numbers.
    # 2. The short group is the last, a group that has the size already, or a dropped group.
    # 3. Undamaged groups are untouched, unless their scope gives too little for them all.
    # 4. Spares claim what pods leave.
    existing = [group for group in former if group.index < numbers]
    # The lowest numbers are placed first: more than so many are never considered.
    possible = {group.index for group in existing} | set(range(min(numbers, request.groups + len(existing))))
    shorter = request.last_pods < request.group_pods
    short = _short(request, existing, numbers) if shorter else -1
    claims = _Claims(offer, request)
    members = _members(claims, request, existing, short)
    stays, others = _stays(members, request, existing, short)
    if shorter and short < 0:
        dropped = {group.index for group in existing} - stays - others
        rest = sorted(possible - stays)
        short = max(dropped) if dropped else rest[request.groups - len(stays) - 1]
        members = _members(claims, request, existing, short)
    lenient = request.groups <= len(existing) and any(member.nodes for member in members)
    untouched = [member for member in members if member.index in stays and member.untouched]
    untouched = _within_ceilings(request, untouched, 0 if lenient else request.spares)
    staying = {member.index for member in untouched}
    touched = [member for member in members if member.index not in staying]
    spares = claims.spares([*untouched, *touched], {group.index: group for group in existing})
    return SurvivingPlan(
        tuple(replace(member, spares=spares[member.index]) for member in untouched),
        tuple(replace(member, spares=spares[member.index]) for member in touched),
        tuple(sorted(possible - staying)),
        short,
        lenient,
    )


def _short(request: Request, former: Sequence[Group], numbers: int) -> int:
    """Return the number of the short group, -1 where that is still open: the last, or a group of this size."""
    if request.groups == numbers:
        return numbers - 1
    gpus = request.last_pods * request.pod_gpus
    return max((group.index for group in former if group.gpus == gpus), default=-1)


def _stays(
    members: Sequence[SurvivingGroup], request: Request, former: Sequence[Group], short: int
) -> tuple[set[int], set[int]]:
    """Return the numbers of the groups that stay, and of the touched groups; a smaller run drops some groups.

    A smaller run has fewer groups than still stand; those with the highest numbers go.
    """
    whole = [member.index for member in members if member.untouched and member.index != short]
    most = request.groups - (request.last_pods < request.group_pods)
    stays = set(whole[:most]) | {member.index for member in members if member.untouched and member.index == short}
    return stays, {group.index for group in former} - set(whole) - {short}


def _members(claims: "_Claims", request: Request, former: Sequence[Group], short: int) -> list[SurvivingGroup]:
    """Return the groups whose domain and scope exist, and which of their pods stand. Whole groups come first.

    Where a node has fewer slots than pods stood on it, the groups with the lowest numbers have them.
    """
    claims.clear()
    found: dict[int, SurvivingGroup] = {}
    for whole in (True, False):
        for group in former:
            pods = request.last_pods if group.index == short else request.group_pods
            if group.index not in found and (member := claims.member(group, pods, whole=whole)) is not None:
                found[group.index] = member
    return [found[index] for index in sorted(found)]


def _within_ceilings(request: Request, untouched: Sequence[SurvivingGroup], spares: int) -> list[SurvivingGroup]:
    """Return the groups, except in scopes that give too little for all of them: these groups are chosen again."""
    given: Counter[int] = Counter()
    for member in untouched:
        given[member.scope] += member.pods + spares
    most = request.scope_pods
    return [member for member in untouched if not most or given[member.scope] <= most[member.scope]]


class _Claims:
    """The slots that are left on the nodes of an offer, as groups claim those that they had."""

    def __init__(self, offer: Capacity, request: Request) -> None:
        self._offer = offer
        self._request = request
        # Plain lists: single numbers out of an array take ten times as long.
        self._slots = offer.node_slots.tolist()
        self._kinds = offer.node_kinds.tolist()
        self._scopes = {name: number for number, name in enumerate(request.scope_names)}
        self._taken: Counter[str] = Counter()

    def clear(self) -> None:
        """Release all claims."""
        self._taken.clear()

    def member(self, group: Group, pods: int, *, whole: bool) -> SurvivingGroup | None:
        """Return a group and claim what stands of it; None if it has no home, or is not `whole` and should be."""
        domain = self._offer.inventory.domains.get(group.place)
        scope = self._scopes.get(group.scope) if self._request.ceilings else 0
        if domain is None or scope is None or any(gpus % self._request.pod_gpus for _, gpus in group.nodes):
            return None
        wanted = {name: gpus // self._request.pod_gpus for name, gpus in sorted(group.nodes)}
        found = {name: min(count, self._unclaimed(name, group.place, scope)) for name, count in wanted.items()}
        stands: dict[str, int] = {}
        for name, count in found.items():
            if stay := min(count, pods - sum(stands.values())):
                stands[name] = stay
        untouched = found == wanted and sum(wanted.values()) == pods
        if whole and not untouched:
            return None
        self._taken.update(stands)
        return SurvivingGroup(group.index, pods, domain, scope, stands, untouched)

    def spares(self, members: Sequence[SurvivingGroup], former: Mapping[int, Group]) -> dict[int, tuple[Spare, ...]]:
        """Return the spares of each group that have a slot beside all pods that stand."""
        self.clear()
        for member in members:
            self._taken.update(member.nodes)
        most = self._request.spares
        return {member.index: tuple(islice(self._ready(member, former[member.index]), most)) for member in members}

    def _ready(self, member: SurvivingGroup, group: Group) -> Iterator[Spare]:
        """Yield the spares of a group that stand, the nearest first, and claim them."""
        inventory = self._offer.inventory
        # How near they are is determined again: the former plan may claim anything.
        ready = [
            replace(spare, distance=distance_between(inventory, member.domain, inventory.domains[spare.place]))
            for spare in group.spares
            if spare.gpus == self._request.pod_gpus and spare.place in inventory.domains
        ]
        for spare in sorted(ready, key=lambda spare: _NEAREST_FIRST.index(spare.distance)):
            if spare.place[: self._request.depth] != group.place[: self._request.depth]:
                continue  # a run that stays in one area has no spare outside of it
            if self._unclaimed(spare.node, spare.place, member.scope) > 0:
                self._taken[spare.node] += 1
                yield spare

    def _unclaimed(self, name: str, place: Location, scope: int) -> int:
        """Return the unclaimed slots of a node; 0 if it is in another domain than it was, or not in the scope."""
        number = self._offer.inventory.numbers.get(name)
        if number is None or self._offer.inventory.nodes[number].place != place:
            return 0
        kind = self._kinds[number]
        if kind < 0 or scope not in self._offer.kinds[kind]:
            return 0
        return int(self._slots[number]) - self._taken[name]


@dataclass(slots=True)
class NewGroup:
    """A group of the new plan in its domain and scope. `member` is the same group in the former plan, if it stayed.

    `ready` are spares of the former plan whose slots no pod took; `spares` the spares of this plan. `from_spares` are
    pods that took the slots of spares, their own or a neighbor's.
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
        """Return how many pods have no node yet."""
        return self.pods - self.nodes.total()

    @property
    def changed(self) -> bool:
        """Return whether any pod of the group has another node than in the former plan."""
        return self.member is None or self.member.nodes != self.nodes

    def here(self) -> list[Spare]:
        """Return the remaining spares of the former plan in the domain of the group."""
        return [spare for spare in self.ready if spare.place == self.place]

    def take_spare(self, node: str) -> None:
        """Use up a spare of the former plan on a node for a pod."""
        self.ready.remove(next(spare for spare in self.ready if spare.node == node))
