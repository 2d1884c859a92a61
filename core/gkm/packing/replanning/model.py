"""The integer program for a run that already has a plan, with a column for each group that may stay (calculus.md).

The model places the whole run. Untouched groups are rows that no solution breaks; a touched group has a column that is
1 where it keeps its domain and scope, and one for its pods that keep their slots on each kind of nodes. So groups that
move and pods that move are sums of columns, and come before the costs of the policy.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gkm.packing.domains.capacity import Capacity
from gkm.packing.model import Flow, Key, PlacementModel
from gkm.packing.program import SearchLimits, Solution, Sum, total
from gkm.packing.replanning.surviving_groups import SurvivingGroup, SurvivingPlan
from gkm.packing.values import CostPart, Group, Request


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which groups of a planned run stay, and how many groups of each scope each domain takes.

    `stays` has the touched groups that stay, each with its pods that keep their slots, by kind of nodes. `slots` are
    the slots that each scope takes of a kind of nodes in a domain, for pods and colocated spares; `colocated` are these
    spares. `spares` are the spares of each scope in all. `proven` says that no fewer groups can move. Where a rule
    limits nodes, `nodes` are the used ones, by domain and kind.
    """

    whole: Mapping[Key, int]
    short: Key | None
    stays: Mapping[int, Mapping[int, int]]
    slots: Mapping[Flow, int]
    colocated: Mapping[Key, int]
    spares: Mapping[int, int]
    proven: bool
    nodes: Mapping[Key, int] = field(default_factory=dict)


def assign(
    offer: Capacity, request: Request, surviving: SurvivingPlan, deadline: float, *, any_way: bool = False
) -> Assignment | None:
    """Return the assignment that moves the fewest groups, then the fewest pods, then lacks the fewest spares.

    None if the touched groups do not fit beside the untouched. With `any_way` the first assignment that fits is
    returned.

    Raises:
        TooLargeError: the limits of the search, or the deadline, end it before the first solution.
    """
    # 1. The model places all groups on domains that could matter; ceilings come later, since untouched groups are rows.
    # 2. Untouched groups stay; where the model has no column for a group, there is no assignment.
    # 3. Touched groups get columns that say whether they, and how many of their pods, stay.
    # 4. Objectives: groups and pods that stay, spares that lack, the policy's costs, spares that stay, earlier domains.
    model = PlacementModel(
        offer,
        request,
        leave=True,
        may_lack=surviving.lenient,
        limited=False,
        among=_relevant(offer, request, surviving),
    )
    if request.balanced and request.may_spread:
        _balance(offer, request, model)
    staying = _Staying(offer, surviving, model, several=len(request.ceilings) > 1 or request.limits_nodes)
    if not staying.fixed():
        return None
    staying.add()
    staying.keep_layers(request)
    model.limit(request.scope_pods)
    objectives = [
        *staying.moves(),
        total(model.lacking.values()),
        *model.costs(request.policy),
        *staying.spares(),
        total(used * (1 + domain) for domain, used in model.used[CostPart.DOMAINS].items()),
        total(groups * (1 + domain) for (domain, _), groups in model.whole.items()),
    ]
    solution = model.program.solve([] if any_way else objectives, SearchLimits.before(deadline))
    return None if solution is None else staying.assignment(request, solution)


def matched(
    offer: Capacity, request: Request, surviving: SurvivingPlan, groups: Sequence[Group], *, proven: bool
) -> Assignment:
    """Return the assignment for a plan from scratch; a group stays if the plan has a group in its domain and scope."""
    scopes = {name: number for number, name in enumerate(request.scope_names)}
    whole: Counter[Key] = Counter()
    colocated: Counter[Key] = Counter()
    slots: Counter[Flow] = Counter()
    spares: Counter[int] = Counter()
    short = None
    for group in groups:
        domain, scope = offer.inventory.domains[group.place], scopes[group.scope]
        if surviving.short >= 0 and group.gpus < request.group_gpus:
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
    for member in sorted(surviving.touched, key=lambda member: (-sum(member.nodes.values()), member.index)):
        key = member.domain, member.scope
        if (short == key) if member.index == surviving.short else left[key]:
            left[key] -= member.index != surviving.short
            pods = {
                kind: min(count, rest[member.domain, kind, member.scope])
                for kind, count in by_kind(offer, member.nodes).items()
            }
            rest.subtract({(member.domain, kind, member.scope): count for kind, count in pods.items()})
            stays[member.index] = pods
    several = len(request.ceilings) > 1
    return Assignment(whole, short, stays, slots if several else {}, colocated, spares, proven)


def by_kind(offer: Capacity, nodes: Mapping[str, int]) -> Counter[int]:
    """Return the sums of numbers of nodes by kind of nodes; `nodes` has a number for each node by name."""
    found: Counter[int] = Counter()
    for name, count in nodes.items():
        found[offer.kind_of(name)] += count
    return found


def _relevant(offer: Capacity, request: Request, surviving: SurvivingPlan) -> set[int]:
    """Return the domains of the run, and of those that are alike as many as the run could use."""
    if request.per_area:
        return set(np.flatnonzero(offer.domain_slots).tolist())
    homes = {member.domain for member in (*surviving.untouched, *surviving.touched)}
    blocks = {int(offer.inventory.blocks[domain]) for domain in homes}
    movable = request.groups - len(surviving.untouched)
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
    """Give all domains that are used the same number of groups, a divisor of their total."""
    program, most = model.program, int(offer.domain_slots.max(initial=0)) // request.group_pods + 1
    sizes = [share for share in range(1, min(request.groups, most) + 1) if request.groups % share == 0]
    shares = {share: program.variable(1) for share in sizes}
    program.row(total(shares.values()), least=1, most=1)
    share = total(column * share for share, column in shares.items())
    for domain, used in model.used[CostPart.DOMAINS].items():
        groups = model.groups(domain=domain)
        program.at_most(groups, share)
        program.row(groups - share - used * most, least=-most)


class _Staying:
    """The columns and rows of the groups of the former plan, which may stay."""

    def __init__(self, offer: Capacity, surviving: SurvivingPlan, model: PlacementModel, *, several: bool) -> None:
        self._offer = offer
        self._several = several
        self._surviving = surviving
        self._model = model
        self._stay: dict[int, Sum] = {}
        self._pods: dict[int, dict[int, Sum]] = {}
        self._spares: list[Sum] = []
        # Slots that are needed at least: by columns, and by groups that stay in any case.
        self._least: dict[Flow, Sum] = {}
        self._untouched: Counter[Flow] = Counter()
        self._counts: Counter[tuple[bool, Key]] = Counter()

    def fixed(self) -> bool:
        """Keep the undamaged groups where they are; return False if the model has no columns for them."""
        for member in self._surviving.untouched:
            if self._groups(self._key(member)) is None:
                return False
            self._counts[self._key(member)] += 1
            for kind, pods in by_kind(self._offer, member.nodes).items():
                self._untouched[member.domain, kind, member.scope] += pods
        return True

    def add(self) -> None:
        """Add a column for each damaged group that may stay, and rows that let it stay only if its domain takes it."""
        program = self._model.program
        stays = {key: Sum() for key in self._counts}
        for member in self._surviving.touched:
            if self._groups(self._key(member)) is not None:
                stay = self._stay[member.index] = program.variable(1)
                stays.setdefault(self._key(member), Sum()).add(stay)
                self._pods[member.index] = {}
                for kind, count in by_kind(self._offer, member.nodes).items():
                    pods = self._pods[member.index][kind] = program.variable(count)
                    program.at_most(pods, stay * count)
                    self._least.setdefault((member.domain, kind, member.scope), Sum()).add(pods)
        for key, staying in stays.items():
            program.row((self._groups(key) or Sum()) - staying, least=self._counts[key])
        if self._several:
            self._ready()
        for flow in {**self._least, **self._untouched}:
            if self._several or flow in self._least:
                program.row(self._model.flows[flow] - self._least.get(flow, {}), least=self._untouched[flow])

    def keep_layers(self, request: Request) -> None:
        """Let groups stay only where all groups of their layer are, and a layer only where its outer layer is.

        A layer without a group that stays may be anywhere: these are only counted.
        """
        program = self._model.program
        for rule in request.layers:
            areas = self._offer.inventory.areas(rule.level).tolist()
            kept: dict[tuple[int, int], Sum] = {}
            homes, here = defaultdict[int, Sum](Sum), defaultdict[int, Sum](Sum)
            for member in (*self._surviving.untouched, *self._surviving.touched):
                layer, area = member.index // rule.multiple, areas[member.domain]
                if (layer, area) not in kept:
                    kept[layer, area] = program.variable(1)
                    homes[layer].add(kept[layer, area])
                    here[area].add(kept[layer, area])
                if member.index in self._stay:
                    program.at_most(self._stay[member.index], kept[layer, area])
            for member in self._surviving.untouched:
                program.row(kept[member.index // rule.multiple, areas[member.domain]], least=1)
            for columns in homes.values():
                program.row(columns, most=1)
            for area, columns in here.items():
                program.at_most(columns, self._model.layers.get((rule.level, area), {}))

    def moves(self) -> list[Sum]:
        """Return the objectives of groups that move and of pods that move, as those that stay, negative."""
        pods = (column for columns in self._pods.values() for column in columns.values())
        return [total(self._stay.values()) * -1, total(pods) * -1]

    def spares(self) -> list[Sum]:
        """Return the objectives of spares that stay where they are and of those beside their groups, negative.

        With one scope they follow from the slots of each domain.
        """
        colocated = self._model.colocated.values() if self._several else ()
        return [total(self._spares) * -1, total(colocated) * -1]

    def assignment(self, request: Request, solution: Solution) -> Assignment:
        """Return the values of a solution."""
        model = self._model
        whole = {key: count for key, groups in model.whole.items() if (count := solution.of(groups))}
        flows = {flow: solution.of(slots) for flow, slots in model.flows.items()} if self._several else {}
        spares = {
            scope: solution.of(model.groups(scope) * request.spares - model.lacking.get(scope, {}))
            for scope in range(len(request.scope_names))
        }
        return Assignment(
            whole,
            next((key for key, group in model.short.items() if solution.of(group)), None),
            self._stays(request, solution),
            flows,
            {key: solution.of(home) for key, home in model.colocated.items()},
            spares,
            solution.reached[:1] == solution.bounds[:1],
            {key: solution.of(used) for key, used in model.nodes.items()},
        )

    def _stays(self, request: Request, solution: Solution) -> dict[int, Mapping[int, int]]:
        """Return the touched groups that stay; among groups that are alike, the lowest numbers."""
        alike: dict[object, list[int]] = {}
        for member in self._surviving.touched:
            if member.index in self._stay:
                pods = tuple(sorted(by_kind(self._offer, member.nodes).items()))
                layers = tuple([member.index // rule.multiple for rule in request.layers])
                alike.setdefault((self._key(member), layers, pods), []).append(member.index)
        found: dict[int, Mapping[int, int]] = {}
        for indexes in alike.values():
            staying = [index for index in indexes if solution.of(self._stay[index])]
            for index, chosen in zip(indexes, staying, strict=False):
                found[index] = {kind: solution.of(column) for kind, column in self._pods[chosen].items()}
        return found

    def _ready(self) -> None:
        """Add a column for the spares of each domain, kind and scope that may stay on their nodes."""
        ready: Counter[Flow] = Counter()
        for member in (*self._surviving.untouched, *self._surviving.touched):
            here = [spare.node for spare in member.spares if spare.place == self._offer.inventory.places[member.domain]]
            for kind, count in by_kind(self._offer, Counter(here)).items():
                ready[member.domain, kind, member.scope] += count
        stays: dict[Key, Sum] = {}
        for (domain, kind, scope), count in ready.items():
            if (domain, scope) in self._model.colocated:
                column = self._model.program.variable(count)
                self._spares.append(column)
                self._least.setdefault((domain, kind, scope), Sum()).add(column)
                stays.setdefault((domain, scope), Sum()).add(column)
        for key, staying in stays.items():
            self._model.program.at_most(staying, self._model.colocated[key])

    def _key(self, member: SurvivingGroup) -> tuple[bool, Key]:
        """Return whether a group is the short one, and its domain and scope."""
        return member.index == self._surviving.short, (member.domain, member.scope)

    def _groups(self, key: tuple[bool, Key]) -> Sum | None:
        short, at = key
        return (self._model.short if short else self._model.whole).get(at)
