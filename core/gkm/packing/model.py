"""The placement of a run as an integer program: for whatever the tables of `domains` do not cover (calculus.md).

Columns count, for each domain and each scope that has nodes there, the whole groups, the short last group, the spares
in the domain of their group (colocated) and the groups of which a spare is elsewhere. A scope takes slots of the kinds
of nodes that it includes: a domain in which scopes overlap is a transport problem, whose rows keep it exact. Spares
that leave their domain (overflow spares) take slots of their scope anywhere; `nodes` decides which. The parts of a
plan's cost are sums of columns, and the objectives.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from gkm.packing.domains.capacity import Capacity, Shape, shape
from gkm.packing.domains.objective import ORDERS, CostPart
from gkm.packing.program import Program, Solution, Terms, weighted
from gkm.packing.values import Ceiling, Policy, Request

__all__ = ("Key", "PlacementModel", "placement_model")

Key = tuple[int, int]
"""A domain and a scope, or a domain and a kind of nodes, each by number."""


@dataclass(slots=True)
class PlacementModel:
    """The program, its columns by domain and scope, and the sums that can be objectives.

    `overflow` has, for each scope, the spares that leave; `lacking` those that no slot is found for, where spares may
    lack. `flows` has, by domain, kind and scope, the slots that the groups of a scope take of a kind, colocated spares
    included.
    """

    program: Program
    size: Shape
    whole: dict[Key, int] = field(default_factory=dict)
    short: dict[Key, int] = field(default_factory=dict)
    colocated: dict[Key, int] = field(default_factory=dict)
    leaving: dict[Key, int] = field(default_factory=dict)
    overflow: dict[int, Terms] = field(default_factory=dict)
    lacking: dict[int, int] = field(default_factory=dict)
    used: dict[CostPart, dict[int, int]] = field(default_factory=dict)
    free: dict[int, int] = field(default_factory=dict)
    flows: dict[tuple[int, int, int], Terms] = field(default_factory=dict)

    def cost(self, part: CostPart) -> Terms:
        """Return a part of the cost; of stranded GPUs it is what is free in used domains before the run."""
        if part is CostPart.SPARES_ELSEWHERE:
            return dict.fromkeys(self.leaving.values(), 1)
        if part is CostPart.STRANDED:
            return {column: self.free[domain] for domain, column in self.used[CostPart.DOMAINS].items()}
        return dict.fromkeys(self.used[part].values(), 1)

    def costs(self, policy: Policy) -> list[Terms]:
        """Return the objectives of a policy, in order."""
        return [self.cost(part) for part in ORDERS[policy]]

    def groups(self, scope: int | None = None, domain: int | None = None) -> dict[int, int]:
        """Return the number of groups of a scope, of a domain or of all, the short one included."""
        return {
            column: 1
            for columns in (self.whole, self.short)
            for (at, of), column in columns.items()
            if scope in {None, of} and domain in {None, at}
        }

    def pods(self, scope: int) -> dict[int, int]:
        """Return the pods of a scope, spares of its groups included that do not lack."""
        unit = self.size.pods + self.size.spares
        return weighted(
            (unit, {column: 1 for (_, of), column in self.whole.items() if of == scope}),
            (unit - self.size.missing, {column: 1 for (_, of), column in self.short.items() if of == scope}),
            (-1, {column: 1 for of, column in self.lacking.items() if of == scope}),
        )

    def limit(self, ceilings: Sequence[Ceiling], pod_gpus: int) -> None:
        """Limit each scope to its ceiling; spares that lack take nothing of it."""
        for scope, ceiling in enumerate(ceilings):
            self.program.row(self.pods(scope), most=ceiling.gpus // pod_gpus)

    def count(self, solution: Solution, columns: Mapping[Key, int], key: Key) -> int:
        """Return the value of a column that may be absent."""
        return solution.values[columns[key]] if key in columns else 0


def placement_model(
    capacity: Capacity,
    request: Request,
    *,
    leave: bool,
    may_lack: bool = False,
    limited: bool = True,
    among: Collection[int] | None = None,
) -> PlacementModel:
    """Return the program that places the groups of a request.

    With `leave` spares may be in other domains than their groups; with `may_lack` any number of them may lack.
    Without `limited` the caller adds the ceilings. Domains that are not `among` these take no groups; spares may
    overflow to them.
    """
    return _Builder(capacity, request, leave=leave, may_lack=may_lack).build(among, limited=limited)


class _Builder:
    """Adds columns and rows, domain by domain, and then those of the whole run."""

    def __init__(self, capacity: Capacity, request: Request, *, leave: bool, may_lack: bool) -> None:
        self.capacity = capacity
        self.request = request
        self.may_lack = may_lack
        self.model = PlacementModel(Program(), shape(request))
        # Spares that stay are part of their group; those that may leave or lack have columns of their own.
        self.apart = bool(request.spares) and (leave or may_lack)
        self.leave = self.apart and leave and request.may_spread
        self.scopes = max(1, len(request.ceilings))
        self.totals = [0] * len(capacity.kinds)
        # The columns of areas of which a run uses one, and the slots that each has, by kind.
        self.areas: dict[tuple[str, ...], int] = {}
        self.of_areas: list[Counter[tuple[str, ...]]] = [Counter() for _ in capacity.kinds]
        self.taken: list[dict[int, int]] = [{} for _ in capacity.kinds]
        self.slots = capacity.slots.tolist()
        self.most_whole = request.groups - (self.model.size.missing > 0)

    def build(self, among: Collection[int] | None, *, limited: bool) -> PlacementModel:
        model, program, request = self.model, self.model.program, self.request
        domains = [
            number
            for number in range(len(self.slots))
            if self._domain(number, takes_groups=among is None or number in among)
        ]
        self._levels(domains)
        program.row(dict.fromkeys(model.whole.values(), 1), least=self.most_whole, most=self.most_whole)
        if model.size.missing:
            program.row(dict.fromkeys(model.short.values(), 1), least=1, most=1)
        if not request.may_spread:
            program.row(dict.fromkeys(model.used[CostPart.DOMAINS].values(), 1), most=1)
        if self.areas:
            program.row(dict.fromkeys(self.areas.values(), 1), most=1)
        if limited:
            model.limit(request.ceilings, request.pod_gpus)
        if self.apart:
            self._spares()
        return model

    def _domain(self, domain: int, *, takes_groups: bool) -> bool:
        """Add what a domain can take; return whether that is anything."""
        offered = self._offered(domain)
        kinds = self.capacity.kinds
        for kind, slots in offered.items():
            self.totals[kind] += slots
            if self.request.within:
                self.of_areas[kind][self.capacity.inventory.places[domain][: self.request.depth]] += slots
        needs: dict[int, Terms] = {}
        for scope in sorted({scope for kind in offered for scope in kinds[kind]} if takes_groups else ()):
            reachable = sum(slots for kind, slots in offered.items() if scope in kinds[kind])
            if need := self._groups(domain, scope, reachable):
                needs[scope] = need
        if not needs:
            return False
        self._transport(domain, offered, needs)
        used = self.model.program.column(1)
        self.model.used.setdefault(CostPart.DOMAINS, {})[domain] = used
        self.model.free[domain] = int(self.capacity.free[domain])
        self._within(used, domain, sum(offered.values()))
        return True

    def _offered(self, domain: int) -> dict[int, int]:
        """Return the slots of a domain by kind of nodes, those of kinds without any left out."""
        return {kind: slots for kind, slots in enumerate(self.slots[domain]) if slots}

    def _groups(self, domain: int, scope: int, slots: int) -> Terms:
        """Add the columns of a scope in a domain; return how many slots they need there."""
        model, program, size = self.model, self.model.program, self.model.size
        key = domain, scope
        unit = size.pods + (0 if self.apart else size.spares)
        need: dict[int, int] = {}
        if most := min(self.most_whole, slots // unit):
            model.whole[key] = program.column(most)
            need[model.whole[key]] = unit
        if size.missing and slots >= unit - size.missing:
            model.short[key] = program.column(1)
            need[model.short[key]] = unit - size.missing
        if need and self.apart:
            groups = dict.fromkeys(need, size.spares)
            home = model.colocated[key] = program.column(slots)
            program.row(weighted((1, {home: 1}), (-1, groups)), most=0)
            need[home] = 1
            if self.leave:
                away = model.leaving[key] = program.column(self.request.groups)
                # The spares that leave are those of as few groups as can be.
                program.row(weighted((1, groups), (-1, {home: 1}), (-size.spares, {away: 1})), most=0)
        return need

    def _transport(self, domain: int, offered: Mapping[int, int], needs: Mapping[int, Terms]) -> None:
        """Give each scope slots of the kinds that it includes, no kind more than it has."""
        program, kinds = self.model.program, self.capacity.kinds
        takers = {kind: [scope for scope in sorted(kinds[kind]) if scope in needs] for kind in offered}
        shared = any(len(scopes) > 1 for scopes in takers.values()) or any(
            sum(scope in scopes for scopes in takers.values()) > 1 for scope in needs
        )
        flows: dict[Key, Terms] = {}
        for kind, scopes in takers.items():
            for scope in scopes:
                column = program.column(offered[kind]) if shared else 0
                flows[kind, scope] = {column: 1} if shared else needs[scope]
                self.model.flows[domain, kind, scope] = flows[kind, scope]
        if shared:
            for scope, need in needs.items():
                parts = [(-1, flow) for (_, of), flow in flows.items() if of == scope]
                program.row(weighted((1, need), *parts), least=0, most=0)
        for kind, slots in offered.items():
            used = weighted(*((1, flow) for (of, _), flow in flows.items() if of == kind))
            program.row(used, most=slots)
            for column, weight in used.items():
                self.taken[kind][column] = self.taken[kind].get(column, 0) + weight

    def _within(self, used: int, domain: int, slots: int) -> None:
        """Require that a domain is used where a group is in it."""
        program, size = self.model.program, self.model.size
        here = [self.model.whole[domain, scope] for scope in range(self.scopes) if (domain, scope) in self.model.whole]
        unit = size.pods + (0 if self.apart else size.spares)
        if here:
            most = min(self.most_whole, slots // unit)
            program.row({**dict.fromkeys(here, 1), used: -most}, most=0)
        for scope in range(self.scopes):
            if (domain, scope) in self.model.short:
                program.row({self.model.short[domain, scope]: 1, used: -1}, most=0)

    def _levels(self, domains: Sequence[int]) -> None:
        """Require that a block, a cluster and a region are used where one of their domains is."""
        program, used, places = self.model.program, self.model.used, self.capacity.inventory.places
        used.setdefault(CostPart.DOMAINS, {})
        for part, depth in ((CostPart.BLOCKS, 3), (CostPart.CLUSTERS, 2), (CostPart.REGIONS, 1)):
            numbers: dict[tuple[str, ...], int] = {}
            columns = used.setdefault(part, {})
            for domain in domains:
                number = numbers.setdefault(tuple(places[domain][:depth]), len(numbers))
                if number not in columns:
                    columns[number] = program.column(1)
                program.row({used[CostPart.DOMAINS][domain]: 1, columns[number]: -1}, most=0)
            if self.request.within and self.request.depth == depth:
                self.areas = {area: columns[number] for area, number in numbers.items()}

    def _spares(self) -> None:
        """Give every spare that is not colocated a slot of its scope anywhere, or count it as lacking."""
        model, program, kinds = self.model, self.model.program, self.capacity.kinds
        flows: dict[Key, int] = {}
        for scope in range(self.scopes):
            homes = {column: 1 for (_, of), column in model.colocated.items() if of == scope}
            away = weighted((model.size.spares, model.groups(scope)), (-1, homes))
            model.overflow[scope] = away
            if self.may_lack:
                model.lacking[scope] = program.column(self.request.groups * model.size.spares)
                away = weighted((1, away), (-1, {model.lacking[scope]: 1}))
            here = [kind for kind, scopes in enumerate(kinds) if scope in scopes] if self.leave else []
            for kind in here:
                flows[kind, scope] = program.column(sum(self.totals))
            program.row(weighted((1, away), *((-1, {flows[kind, scope]: 1}) for kind in here)), least=0, most=0)
        for kind, total in enumerate(self.totals):
            guests = {column: 1 for (of, _), column in flows.items() if of == kind}
            areas = {column: -self.of_areas[kind][area] for area, column in self.areas.items()}
            if guests:
                terms = weighted((1, guests), (1, self.taken[kind]), (1, areas))
                program.row(terms, most=0 if areas else total)
