"""The placement model of a run that has a plan, with a column for each group that may stay (calculus.md).

The model places the whole run. Untouched groups are rows that no solution breaks; a touched group has a column that is
1 where it keeps its domain and scope, and one for its pods that keep their slots on each kind of nodes. So groups that
move and pods that move are sums of columns, and come before the costs of the policy.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.objective import CostPart
from gkm.packing.model import Key, PlacementModel, placement_model
from gkm.packing.program import SearchLimits, Solution, Terms, weighted
from gkm.packing.replanning.surviving_groups import SurvivingGroup, SurvivingPlan
from gkm.packing.values import Group, Request

__all__ = ("Assignment", "assign", "matched")

Flow = tuple[int, int, int]
"""A domain, a kind of nodes and a scope, each by number."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """How many groups each domain takes of each scope, and which groups stay.

    `stays` has the touched groups that stay, each with its pods that keep their slots, by kind of nodes. `slots` are
    those that each scope takes of a kind of nodes in a domain, for pods and colocated spares; `colocated` are these
    spares. `spares` are those of each scope in all. `proven` says that no fewer groups can move.
    """

    whole: Mapping[Key, int]
    short: Key | None
    stays: Mapping[int, Mapping[int, int]]
    slots: Mapping[Flow, int]
    colocated: Mapping[Key, int]
    spares: Mapping[int, int]
    proven: bool


def assign(
    offer: Capacity, request: Request, what: SurvivingPlan, deadline: float, *, any_way: bool = False
) -> Assignment | None:
    """Return the assignment that moves the fewest groups, then pods, lacks the fewest spares and costs least.

    None where the touched groups do not fit beside the untouched. With `any_way` the first one that fits will do.

    Raises:
        TooLargeError: the limits of the search, or the deadline, end it before the first solution.
    """
    model = placement_model(
        offer,
        request,
        leave=True,
        may_lack=what.lenient,
        limited=False,
        among=_relevant(offer, request, what),
    )
    if request.balanced and request.may_spread:
        _balance(offer, request, model)
    columns = _Columns(offer, what, model, several=len(request.ceilings) > 1)
    if not columns.fixed():
        return None
    columns.stay()
    model.limit(request.ceilings, request.pod_gpus)
    objectives = (
        []
        if any_way
        else [
            *columns.moves(),
            dict.fromkeys(model.lacking.values(), 1),
            *model.costs(request.policy),
            *columns.spares(),
            *_keys(model),
        ]
    )
    solution = model.program.solve(objectives, SearchLimits.before(deadline))
    return None if solution is None else columns.assignment(request, solution)


def matched(
    offer: Capacity, request: Request, what: SurvivingPlan, groups: Sequence[Group], *, proven: bool
) -> Assignment:
    """Return the assignment of a plan from scratch: groups stay that find their domain and scope in it."""
    domains = {place: number for number, place in enumerate(offer.inventory.places)}
    scopes = {ceiling.scope: number for number, ceiling in enumerate(request.ceilings)}
    whole: Counter[Key] = Counter()
    colocated: Counter[Key] = Counter()
    slots: Counter[Flow] = Counter()
    spares: Counter[int] = Counter()
    short = None
    for group in groups:
        domain, scope = domains[group.place], scopes.get(group.scope, 0)
        if what.short >= 0 and group.gpus < request.group_gpus:
            short = domain, scope
        else:
            whole[domain, scope] += 1
        here = [spare.node for spare in group.spares if spare.place == group.place]
        taken = Counter({name: gpus // request.pod_gpus for name, gpus in group.nodes}) + Counter(here)
        for kind, count in by_kind(offer, taken).items():
            slots[domain, kind, scope] += count
        colocated[domain, scope] += len(here)
        spares[scope] += len(group.spares)
    left, rest, stays = Counter(whole), Counter(slots), dict[int, Mapping[int, int]]()
    for member in sorted(what.touched, key=lambda member: (-sum(member.nodes.values()), member.index)):
        key = member.domain, member.scope
        if (short == key) if member.index == what.short else left[key]:
            left[key] -= member.index != what.short
            pods = {
                kind: min(count, rest[member.domain, kind, member.scope])
                for kind, count in by_kind(offer, member.nodes).items()
            }
            rest.subtract({(member.domain, kind, member.scope): count for kind, count in pods.items()})
            stays[member.index] = pods
    several = len(request.ceilings) > 1
    return Assignment(whole, short, stays, slots if several else {}, colocated, spares, proven)


def by_kind(offer: Capacity, nodes: Mapping[str, int]) -> Counter[int]:
    """Return counts by kind of nodes, from counts by node."""
    found: Counter[int] = Counter()
    for name, count in nodes.items():
        found[int(offer.node_kinds[offer.inventory.numbers[name]])] += count
    return found


def _relevant(offer: Capacity, request: Request, what: SurvivingPlan) -> set[int]:
    """Return the domains of the run, and of those that are alike as many as the run could use."""
    homes = {member.domain for member in (*what.untouched, *what.touched)}
    blocks = {int(offer.inventory.blocks[domain]) for domain in homes}
    movable = request.groups - len(what.untouched)
    found, seen = set(homes), Counter[object]()
    free, numbers = offer.free.tolist(), offer.inventory.blocks.tolist()
    for domain, slots in enumerate(offer.slots.tolist()):
        if any(slots) and domain not in homes:
            # One group finds the same in every block that is not used yet; several groups may share one.
            apart = numbers[domain] in blocks or movable > 1 or request.within is not None
            area = numbers[domain] if apart else offer.inventory.places[domain][:2]
            alike = area, tuple(slots), free[domain]
            seen[alike] += 1
            if seen[alike] <= movable:
                found.add(domain)
    return found


def _balance(offer: Capacity, request: Request, model: PlacementModel) -> None:
    """Give all domains that are used the same number of groups: one that divides all groups."""
    program, most = model.program, int(offer.domain_slots.max(initial=0)) // request.group_pods + 1
    sizes = [share for share in range(1, min(request.groups, most) + 1) if request.groups % share == 0]
    shares = {share: program.column(1) for share in sizes}
    program.row(dict.fromkeys(shares.values(), 1), least=1, most=1)
    share = {column: -share for share, column in shares.items()}
    for domain, used in model.used[CostPart.DOMAINS].items():
        groups = model.groups(domain=domain)
        program.row({**groups, **share}, most=0)
        program.row({**groups, **share, used: -most}, least=-most)


def _keys(model: PlacementModel) -> list[Terms]:
    """Return what decides between equals: earlier domains are used first, and take more groups."""
    return [
        {column: 1 + domain for domain, column in model.used[CostPart.DOMAINS].items()},
        {column: 1 + domain for (domain, _), column in model.whole.items()},
    ]


class _Columns:
    """The columns and rows of the groups of the former plan."""

    def __init__(self, offer: Capacity, what: SurvivingPlan, model: PlacementModel, *, several: bool) -> None:
        self._offer = offer
        self._several = several
        self._what = what
        self._model = model
        self._stay: dict[int, int] = {}
        self._pods: dict[int, dict[int, int]] = {}
        self._spares: dict[Flow, int] = {}
        self._least: dict[Flow, dict[int, int]] = {}
        self._standing: Counter[Flow] = Counter()
        self._counts: Counter[int] = Counter()

    def fixed(self) -> bool:
        """Hold the untouched groups where they are; return False where the model has no columns for them."""
        for member in self._what.untouched:
            column = self._column(member)
            if column is None:
                return False
            self._counts[column] += 1
            for kind, pods in by_kind(self._offer, member.nodes).items():
                self._standing[member.domain, kind, member.scope] += pods
        return True

    def stay(self) -> None:
        """Add the columns of touched groups, and the rows that let them stay only where their domain takes as many."""
        program = self._model.program
        stays: dict[int, dict[int, int]] = {column: {} for column in self._counts}
        for member in self._what.touched:
            column = self._column(member)
            if column is not None:
                stay = self._stay[member.index] = program.column(1)
                stays.setdefault(column, {})[stay] = -1
                self._pods[member.index] = {}
                for kind, count in by_kind(self._offer, member.nodes).items():
                    pods = self._pods[member.index][kind] = program.column(count)
                    program.row({pods: 1, stay: -count}, most=0)
                    self._least.setdefault((member.domain, kind, member.scope), {})[pods] = -1
        for column, terms in stays.items():
            program.row({column: 1, **terms}, least=self._counts[column])
        if self._several:
            self._ready()
        for flow in {**self._least, **self._standing}:
            least = self._least.get(flow, {})
            if self._several or least:
                program.row(weighted((1, self._model.flows[flow]), (1, least)), least=self._standing[flow])

    def moves(self) -> list[Terms]:
        """Return the objectives of groups that move and of pods that move, as those that stay, negative."""
        pods = [column for columns in self._pods.values() for column in columns.values()]
        return [dict.fromkeys(self._stay.values(), -1), dict.fromkeys(pods, -1)]

    def spares(self) -> list[Terms]:
        """Return the objectives of spares that stay where they are and of those beside their groups, negative.

        With one scope they follow from the slots of each domain.
        """
        colocated = self._model.colocated.values() if self._several else ()
        return [dict.fromkeys(self._spares.values(), -1), dict.fromkeys(colocated, -1)]

    def assignment(self, request: Request, solution: Solution) -> Assignment:
        """Return what a solution says."""
        model = self._model
        whole = {key: solution.values[column] for key, column in model.whole.items() if solution.values[column]}
        short = next((key for key, column in model.short.items() if solution.values[column]), None)
        groups = {scope: solution.of(model.groups(scope)) for scope in range(max(1, len(request.ceilings)))}
        return Assignment(
            whole,
            short,
            self._stays(solution),
            {flow: solution.of(terms) for flow, terms in model.flows.items()} if len(request.ceilings) > 1 else {},
            {key: solution.values[column] for key, column in model.colocated.items()},
            {
                scope: count * request.spares - (solution.values[model.lacking[scope]] if model.lacking else 0)
                for scope, count in groups.items()
            },
            solution.reached[:1] == solution.bounds[:1],
        )

    def _stays(self, solution: Solution) -> dict[int, Mapping[int, int]]:
        """Return the touched groups that stay; of groups that are alike those with the lowest numbers."""
        alike: dict[object, list[int]] = {}
        for member in self._what.touched:
            if member.index in self._stay:
                standing = tuple(sorted(by_kind(self._offer, member.nodes).items()))
                key = member.domain, member.scope, member.index == self._what.short, standing
                alike.setdefault(key, []).append(member.index)
        found: dict[int, Mapping[int, int]] = {}
        for indexes in alike.values():
            staying = [index for index in indexes if solution.values[self._stay[index]]]
            for index, chosen in zip(indexes, staying, strict=False):
                found[index] = {kind: solution.values[column] for kind, column in self._pods[chosen].items()}
        return found

    def _ready(self) -> None:
        """Add a column for the spares of each domain, kind and scope that may stay on their nodes."""
        ready: Counter[Flow] = Counter()
        for member in (*self._what.untouched, *self._what.touched):
            here = [spare.node for spare in member.spares if spare.place == self._offer.inventory.places[member.domain]]
            for kind, count in by_kind(self._offer, Counter(here)).items():
                ready[member.domain, kind, member.scope] += count
        homes: dict[Key, dict[int, int]] = {}
        for flow, count in ready.items():
            home = self._model.colocated.get((flow[0], flow[2]))
            if home is not None:
                self._spares[flow] = column = self._model.program.column(count)
                self._least.setdefault(flow, {})[column] = -1
                homes.setdefault((flow[0], flow[2]), {home: 1})[column] = -1
        for terms in homes.values():
            self._model.program.row(terms, least=0)

    def _column(self, member: SurvivingGroup) -> int | None:
        columns = self._model.short if member.index == self._what.short else self._model.whole
        return columns.get((member.domain, member.scope))
