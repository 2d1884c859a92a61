"""The integer program that places a run (calculus.md), and the builder that it shares with `pools`.

`RunProgram` holds what both programs share: scopes take slots of the kinds of nodes that they include, spares take
slots anywhere, and scopes have ceilings.

`PlacementModel` places a run that the tables of `domains` do not cover, and a run that has a plan already. Columns hold
the numbers, for each domain and each scope that has nodes there, the whole groups, the short last group, the spares in
the domain of their group (colocated) and the groups of which a spare is elsewhere. Spares that leave their domain take
slots of their scope anywhere; `nodes` decides which. The parts of a plan's cost are sums of columns, and the
objectives.
"""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from gkm.packing.area_rules import by_area, nodes_of_kinds
from gkm.packing.domains.capacity import Capacity
from gkm.packing.program import Program, Sum, total
from gkm.packing.values import ORDERS, CostPart, Level, Policy, Request

Key = tuple[int, int]
"""A domain with a scope or with a kind of nodes, by number."""
Flow = tuple[int, int, int]
"""A domain, a kind of nodes and a scope, by number."""


class RunProgram(ABC):
    """An integer program that places a run on nodes of some kinds, each with the scopes that take it.

    `taken` has the pods on each kind of nodes, less the slots that freeing adds there.
    """

    def __init__(self, kinds: Sequence[frozenset[int]]) -> None:
        self.program = Program()
        self.kinds = kinds
        self.taken = [Sum() for _ in kinds]

    def variable(self, most: int) -> Sum:
        """Add an integer column from 0 to `most` to the program, and return it as a sum."""
        return self.program.variable(most)

    def transport(self, slots: Mapping[int, int], needs: Mapping[int, Sum], freed: Mapping[int, Sum]) -> dict[Key, Sum]:
        """Let scopes take slots in a domain from the kinds of nodes that they include.

        Return the columns by kind and scope. No kind gives more than its slots and those that are `freed`. Scopes that
        share no kind need no columns.
        """
        takers = [(kind, scope) for kind in slots for scope in sorted(self.kinds[kind]) if scope in needs]
        apart = all(count == 1 for side in zip(*takers, strict=True) for count in Counter(side).values())
        most = {kind: count + self.program.highest(freed.get(kind, {})) for kind, count in slots.items()}
        flows = {(kind, scope): needs[scope] if apart else self.variable(most[kind]) for kind, scope in takers}
        for scope, need in () if apart else needs.items():
            self.program.equal(need, total(flow for (_, of), flow in flows.items() if of == scope))
        for kind, count in slots.items():
            pods = total(flow for (of, _), flow in flows.items() if of == kind) - freed.get(kind, {})
            self.program.row(pods, most=count)
            self.taken[kind].add(pods)
        return flows

    def assign_spares(self, spares: Iterable[tuple[int, Sum]], slots: Mapping[int, int | Sum], most: int) -> None:
        """Give the spares of each scope slots in any domain, in addition to the pods.

        `slots` are the slots of each kind: a number, or a sum where they depend on the areas that are used.
        """
        guests: dict[int, list[Sum]] = {kind: [] for kind in slots}
        for scope, wanted in spares:
            flows = {kind: self.variable(most) for kind in slots if scope in self.kinds[kind]}
            self.program.equal(wanted, total(flows.values()))
            for kind, flow in flows.items():
                guests[kind].append(flow)
        for kind, limit in slots.items():
            pods = total((*guests[kind], self.taken[kind]))
            if isinstance(limit, int):
                self.program.row(pods, most=limit)
            else:
                self.program.at_most(pods, limit)

    def limit(self, ceilings: Iterable[int | None]) -> None:
        """Limit each scope to its ceiling in pods (None: no limit); missing spares need no slots."""
        for scope, most in enumerate(ceilings):
            if most is not None:
                self.program.row(self.pods_of(scope), most=most)

    @abstractmethod
    def pods_of(self, scope: int) -> Sum:
        """Return the sum of pods and spares of a scope."""


class PlacementModel(RunProgram):
    """The integer program that places a request's groups: its columns by domain and scope, and sums for objectives.

    With `leave` spares may be in other domains than their groups; with `may_lack` any number of them may lack:
    `lacking` has these by scope. Without `limited` the caller adds the ceilings. Domains that are not `among` these
    take no groups; spares may overflow to them. `flows` has, by domain, kind and scope, the slots that the groups of a
    scope take of a kind, colocated spares included.
    """

    def __init__(
        self,
        capacity: Capacity,
        request: Request,
        *,
        leave: bool,
        may_lack: bool = False,
        limited: bool = True,
        among: Collection[int] | None = None,
    ) -> None:
        # 1. Each domain gets columns for the groups and colocated spares of each scope, and rows for its slots.
        # 2. A block, a cluster and a region are used where one of their domains is.
        # 3. The run has all its groups, in one domain or one area if it has to.
        # 4. Every area keeps the rules of its level.
        # 5. Scopes give no more than their ceilings, and every spare that is not colocated has a slot elsewhere.
        super().__init__(capacity.kinds)
        self.capacity, self.request = capacity, request
        self.whole: dict[Key, Sum] = {}
        self.short: dict[Key, Sum] = {}
        self.colocated: dict[Key, Sum] = {}
        self.leaving: dict[Key, Sum] = {}
        self.lacking: dict[int, Sum] = {}
        self.used: dict[CostPart, dict[int, Sum]] = {CostPart.DOMAINS: {}}
        self.flows: dict[Flow, Sum] = {}
        self.nodes: dict[Key, Sum] = {}
        self.layers: dict[tuple[Level, int], Sum] = {}
        # Spares that stay are part of their group; spares that may leave or lack have their own columns.
        self._apart = bool(request.spares) and (leave or may_lack)
        self._leave, self._may_lack = self._apart and leave and request.may_spread, may_lack
        self._most_whole = request.groups - (self.request.missing_pods > 0)
        self._unit = self.request.group_pods + (0 if self._apart else self.request.spares)
        slots = [{kind: count for kind, count in enumerate(row) if count} for row in capacity.slots.tolist()]
        for domain, offered in enumerate(slots):
            if among is None or domain in among:
                self._domain(domain, offered)
        areas = self._levels()
        self.program.row(total(self.whole.values()), least=self._most_whole, most=self._most_whole)
        if self.request.missing_pods:
            self.program.row(total(self.short.values()), least=1, most=1)
        if not request.may_spread:
            self.program.row(total(self.used[CostPart.DOMAINS].values()), most=1)
        if areas:
            self.program.row(total(areas.values()), most=1)
        self._keep_rules(areas)
        if limited:
            self.limit(request.scope_pods)
        if self._apart:
            offers = self._slots_for_spares(slots, areas) if self._leave else {}
            self.assign_spares(self._overflow_spares(), offers, int(capacity.slots.sum()))

    def cost(self, part: CostPart) -> Sum:
        """Return a part of a plan's cost as a sum; for stranded GPUs, the free GPUs of used domains before the run."""
        if part is CostPart.SPARES_ELSEWHERE:
            return total(self.leaving.values())
        if part is CostPart.STRANDED:
            free = self.capacity.free.tolist()
            return total(used * free[domain] for domain, used in self.used[CostPart.DOMAINS].items())
        return total(self.used[part].values())

    def costs(self, policy: Policy) -> list[Sum]:
        """Return the parts of a plan's cost as sums, in the order of a policy."""
        return [self.cost(part) for part in ORDERS[policy]]

    def groups(self, scope: int | None = None, domain: int | None = None) -> Sum:
        """Return the number of groups as a sum, of one scope or all, in one domain or all.

        The short group is included.
        """
        return total(
            groups
            for columns in (self.whole, self.short)
            for (at, of), groups in columns.items()
            if scope in {None, of} and domain in {None, at}
        )

    def pods_of(self, scope: int) -> Sum:
        """Return the pods of a scope as a sum, including spares that have a slot."""
        short = total(group for (_, of), group in self.short.items() if of == scope)
        pods = self.groups(scope) * self.request.unit_pods - short * self.request.missing_pods
        return pods - self.lacking.get(scope, {})

    def _domain(self, domain: int, slots: Mapping[int, int]) -> None:
        """Add what a domain can take, and require that it is used where a group is in it."""
        needs: dict[int, Sum] = {}
        for scope in sorted({scope for kind in slots for scope in self.kinds[kind]}):
            reachable = sum(count for kind, count in slots.items() if scope in self.kinds[kind])
            if need := self._groups(domain, scope, reachable):
                needs[scope] = need
        if not needs:
            return
        for (kind, scope), flow in self.transport(slots, needs, {}).items():
            self.flows[domain, kind, scope] = flow
        used = self.used[CostPart.DOMAINS][domain] = self.variable(1)
        if here := total(self.whole.get((domain, scope), {}) for scope in needs):
            self.program.at_most(here, used * min(self._most_whole, sum(slots.values()) // self._unit))
        for scope in needs:
            if (domain, scope) in self.short:
                self.program.at_most(self.short[domain, scope], used)

    def _groups(self, domain: int, scope: int, slots: int) -> Sum:
        """Add the columns of a scope in a domain; return how many slots they need there."""
        request, key, need, groups = self.request, (domain, scope), Sum(), Sum()
        if most := min(self._most_whole, slots // self._unit):
            whole = self.whole[key] = self.variable(most)
            need, groups = need + whole * self._unit, groups + whole
        if request.missing_pods and slots >= self._unit - request.missing_pods:
            short = self.short[key] = self.variable(1)
            need, groups = need + short * (self._unit - request.missing_pods), groups + short
        if need and self._apart:
            home = self.colocated[key] = self.variable(slots)
            self.program.at_most(home, groups * request.spares)
            if self._leave:
                away = self.leaving[key] = self.variable(request.groups)
                # The spares that leave belong to as few groups as possible.
                self.program.at_most(groups * request.spares, home + away * request.spares)
            need += home
        return need

    def _levels(self) -> dict[tuple[str, ...], Sum]:
        """Add which blocks, clusters and regions are used; return the columns of areas of which the run uses one."""
        found: dict[tuple[str, ...], Sum] = {}
        for part, depth in ((CostPart.BLOCKS, 3), (CostPart.CLUSTERS, 2), (CostPart.REGIONS, 1)):
            areas: dict[tuple[str, ...], Sum] = {}
            for domain, used in self.used[CostPart.DOMAINS].items():
                area = self.capacity.inventory.places[domain][:depth]
                if area not in areas:
                    areas[area] = self.variable(1)
                self.program.at_most(used, areas[area])
            self.used[part] = dict(enumerate(areas.values()))
            if self.request.within and self.request.depth == depth:
                found = areas
        return found

    def _keep_rules(self, areas: Mapping[tuple[str, ...], Sum]) -> None:
        """Add the rules for each area: its groups, multiples of them, and its nodes."""
        if self.request.limits_nodes:
            self._count_nodes(areas)
        groups, nodes = defaultdict[int, Sum](Sum), defaultdict[int, Sum](Sum)
        for found, some in ((groups, self.whole), (groups, self.short), (nodes, self.nodes)):
            for (domain, _), column in some.items():
                found[domain].add(column)
        for rule in self.request.per_area:
            for area, domains in by_area(self.capacity, rule).items():
                here = total(groups[domain] for domain in domains)
                if rule.max_groups is not None:
                    self.program.row(here, most=rule.max_groups)
                if rule.multiple > 1 and here:
                    layer = self.layers[rule.level, area] = self.variable(self.request.groups // rule.multiple)
                    self.program.equal(here, layer * rule.multiple)
                if rule.max_nodes is not None:
                    self.program.row(total(nodes[domain] for domain in domains), most=rule.max_nodes)

    def _count_nodes(self, areas: Mapping[tuple[str, ...], Sum]) -> None:
        """Add the nodes that are used of each domain and kind: pods take no slots of others."""
        pods: dict[Key, Sum] = defaultdict(Sum)
        for (domain, kind, _), flow in self.flows.items():
            pods[domain, kind].add(flow)
        for (domain, kind), (count, slots) in nodes_of_kinds(self.capacity).items():
            used = self.nodes[domain, kind] = self.variable(count)
            self.program.at_most(pods[domain, kind], used * slots)
            if areas:
                area = areas.get(self.capacity.inventory.places[domain][: self.request.depth], Sum())
                self.program.at_most(used, area * count)

    def _slots_for_spares(
        self, slots: Sequence[Mapping[int, int]], areas: Mapping[tuple[str, ...], Sum]
    ) -> dict[int, int | Sum]:
        """Return the slots of each kind of nodes: all, of used nodes, or of the area that the run uses."""
        if self.nodes:
            used: list[Sum] = [Sum() for _ in self.kinds]
            for (domain, kind), (_, each) in nodes_of_kinds(self.capacity).items():
                used[kind].add(self.nodes[domain, kind], each)
            return dict(enumerate(used))
        if not areas:
            return dict(enumerate(self.capacity.slots.sum(axis=0).tolist()))
        of_areas: list[Counter[tuple[str, ...]]] = [Counter() for _ in self.kinds]
        for place, offered in zip(self.capacity.inventory.places, slots, strict=True):
            for kind, count in offered.items():
                of_areas[kind][place[: self.request.depth]] += count
        return {
            kind: total(used * counts[area] for area, used in areas.items()) for kind, counts in enumerate(of_areas)
        }

    def _overflow_spares(self) -> Iterable[tuple[int, Sum]]:
        """Yield the spares of each scope that are not colocated and have a slot all the same."""
        for scope in range(len(self.request.scope_names)):
            homes = total(home for (_, of), home in self.colocated.items() if of == scope)
            away = self.groups(scope) * self.request.spares - homes
            if self._may_lack:
                self.lacking[scope] = self.variable(self.request.groups * self.request.spares)
                away -= self.lacking[scope]
            yield scope, away
