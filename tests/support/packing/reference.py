"""The best plan's costs as a mixed-integer programme for HiGHS: docs/design/calculus.md, with scopes, and nothing else.

It shares the values of `gkm.packing` and nothing else with the planner. A variable counts the groups of a domain and
scope, and slots are those of nodes alike: the nodes of one domain that the same scopes take. That is exact, since pods
of one run are alike, and a slot is a slot. Costs are minimized one after another, each held at its least before the
next, in the order of the policy: regions and clusters come before blocks and stranded GPUs.

Stranded GPUs are compared as what is free in the domains that are used, on nodes that a scope of the run takes.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, NamedTuple

import highspy
from gkm.packing.values import MAX_GPUS, Ceiling, Group, Location, Node, Plan, Policy, Request

Home = tuple[Location, str]
Expression = Any
"""A sum of variables: highspy has no types for them."""
INFEASIBLE = (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible)
"""All variables are bounded, so the second is the first."""
ANY = Ceiling("", MAX_GPUS)
LEVELS = {"regions": 1, "clusters": 2, "blocks": 3}
ORDERS = {
    Policy.FEWEST_DOMAINS: ("elsewhere", "domains", "regions", "clusters", "free", "blocks"),
    Policy.FEWEST_BLOCKS: ("elsewhere", "blocks", "regions", "clusters", "domains", "free"),
    Policy.LEAST_WASTE: ("elsewhere", "free", "regions", "clusters", "domains", "blocks"),
}
"""What each policy compares, in order; names decide the rest and are not compared here."""


class UnprovenError(RuntimeError):
    """HiGHS neither proved an optimum nor that there is none, in the time it had."""


class Costs(NamedTuple):
    """What a plan costs. `elsewhere` counts groups with a spare outside their domain, `free` GPUs before the plan."""

    elsewhere: int
    domains: int
    blocks: int
    clusters: int
    regions: int
    free: int

    def by(self, policy: Policy) -> tuple[int, ...]:
        """Return the costs in the order of a policy."""
        return tuple(getattr(self, name) for name in ORDERS[policy])


def least_costs(nodes: Sequence[Node], request: Request) -> Costs | None:
    """Return what the best plan of a run costs, None where the run does not fit. No malleable runs.

    Raises:
        UnprovenError: the case is too large for HiGHS.
    """
    return Programme(nodes, request).least_policy_costs()


def usable(nodes: Iterable[Node], request: Request) -> list[Node]:
    """Return the nodes that a scope of the run takes; all of them where it has none."""
    names = {ceiling.scope for ceiling in request.ceilings}
    return [node for node in nodes if not names or names & node.scopes]


def costs_of(nodes: Sequence[Node], request: Request, groups: Sequence[Group]) -> Costs:
    """Return what groups that lie somewhere cost."""
    used = {group.place for group in groups}
    return Costs(
        elsewhere=sum(any(spare.place != group.place for spare in group.spares) for group in groups),
        domains=len(used),
        blocks=len({place[:3] for place in used}),
        clusters=len({place[:2] for place in used}),
        regions=len({place[:1] for place in used}),
        free=sum(node.free for node in usable(nodes, request) if node.place in used),
    )


def planned_costs(nodes: Sequence[Node], plan: Plan) -> Costs:
    """Return what a plan costs, worked out from its groups."""
    return costs_of(nodes, plan.request, plan.groups)


class Programme:
    """A run on some nodes as a programme. `spares` a group are placed; `load` lies where it lies."""

    def __init__(
        self, nodes: Sequence[Node], request: Request, *, spares: int | None = None, load: Sequence[Group] = ()
    ) -> None:
        self.nodes, self.request, self.load = usable(nodes, request), request, tuple(load)
        self.spares = request.spares if spares is None else spares
        self.model: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        self.model.silent()
        for option, value in (("mip_rel_gap", 0.0), ("mip_abs_gap", 0.0), ("threads", 1), ("time_limit", 60.0)):
            self.model.setOptionValue(option, value)
        self.ceilings = request.ceilings or (ANY,)
        self.places = sorted({node.place for node in self.nodes})
        homes: list[Home] = list(product(self.places, (ceiling.scope for ceiling in self.ceilings)))
        short = request.last_pods if request.last_pods < request.group_pods else 0
        loaded_short = any(group.index == request.groups - 1 for group in load) and bool(short)
        self.short = 0 if loaded_short else short
        to_place = request.groups - len(load)
        self.whole_count = to_place - bool(self.short)
        self.loaded = {home: sum((group.place, group.scope) == home for group in load) for home in homes}
        integral = self.model.addIntegral
        self.whole = {home: integral(lb=0, ub=self.whole_count) for home in homes}
        self.last = {home: integral(lb=0, ub=1 if self.short else 0) for home in homes}
        self.away = {home: integral(lb=0, ub=request.groups if request.may_spread else 0) for home in homes}
        self.used = {place: self.model.addBinary() for place in self.places}
        self._place_all()
        self._slots()
        self.costs = self._costs()

    def least_policy_costs(self) -> Costs | None:
        """Return the least costs in the order of the policy."""
        names = ORDERS[self.request.policy]
        found = self.least([self.costs[name] for name in names])
        return None if found is None else Costs(**dict(zip(names, found, strict=True)))

    def least(self, parts: Sequence[Any]) -> list[int] | None:
        """Return the least of the parts, one after another; None where the run does not fit.

        Raises:
            UnprovenError: the case is too large for HiGHS.
        """
        found: list[int] = []
        for part in parts:
            self.model.minimize(part)
            if self.model.getModelStatus() in INFEASIBLE:
                # The presolve of HiGHS 1.15.1 drops all solutions of some programmes: seed 18701 of the draws.
                self.model.setOptionValue("presolve", "off")
                self.model.run()
                self.model.setOptionValue("presolve", "choose")
            status = self.model.getModelStatus()
            if status in INFEASIBLE and not found:
                return None
            if status != highspy.HighsModelStatus.kOptimal:
                raise UnprovenError(str(status))
            found.append(round(self.model.getInfo().objective_function_value))
            self.model.addConstr(part <= found[-1])
        return found

    def total(self, terms: Iterable[Any]) -> Expression:
        """Return a sum as an expression, of nothing too."""
        return self.model.qsum([*terms, 0 * self.nothing])

    def _place_all(self) -> None:
        self.nothing = self.model.addIntegral(lb=0, ub=0)
        one = self.model.addIntegral(lb=1, ub=1)
        self.model.addConstr(self.total(self.whole.values()) >= self.whole_count * one)
        self.model.addConstr(self.total(self.whole.values()) <= self.whole_count)
        self.model.addConstr(self.total(self.last.values()) == (1 if self.short else 0))
        for home in self.whole:
            groups = self.whole[home] + self.last[home]
            self.model.addConstr(self.away[home] <= groups + self.loaded[home])
            self.model.addConstr(groups <= (self.whole_count + 1) * self.used[home[0]])
            if self.loaded[home]:
                self.model.addConstr(self.used[home[0]] >= 1)
        if not self.request.may_spread:
            self.model.addConstr(self.total(self.used.values()) <= 1)

    def _slots(self) -> None:
        """Bind pods and spares to slots, and what a scope gives to its ceiling."""
        pod, group_pods = self.request.pod_gpus, self.request.group_pods
        taken = {node.name: 0 for node in self.nodes}
        for group in self.load:
            for name, gpus in group.nodes:
                taken[name] += gpus // pod
        slots: dict[tuple[Location, frozenset[str]], int] = {}
        names = {ceiling.scope for ceiling in self.ceilings}
        for node in self.nodes:
            kind = (node.place, node.scopes & names)
            slots[kind] = slots.get(kind, 0) + node.free // pod - taken[node.name]
        near: dict[Home, list[Any]] = {home: [] for home in self.whole}
        far: dict[str, list[Any]] = {ceiling.scope: [] for ceiling in self.ceilings}
        for (place, scopes), count in slots.items():
            here = []
            for scope in scopes or {ANY.scope} & names:
                pods = self.model.addIntegral(lb=0, ub=max(0, count))
                ready = self.model.addIntegral(lb=0, ub=max(0, count))
                near[place, scope].append(pods)
                far[scope].append(ready)
                here += [pods, ready]
            self.model.addConstr(self.total(here) <= count)
        for home, given in near.items():
            groups = self.whole[home] + self.last[home]
            pods = group_pods * self.whole[home] + self.short * self.last[home]
            stay = self.spares * (groups + self.loaded[home] - self.away[home])
            self.model.addConstr(self.total(given) - pods - stay == 0)
        for ceiling in self.ceilings:
            homes = [home for home in self.whole if home[1] == ceiling.scope]
            self.model.addConstr(
                self.total(far[ceiling.scope]) - self.spares * self.total(self.away[home] for home in homes) == 0
            )
            self._bind(ceiling, homes)

    def _bind(self, ceiling: Ceiling, homes: Sequence[Home]) -> None:
        pod, unit = self.request.pod_gpus, self.request.group_pods + self.spares
        loaded = [group for group in self.load if group.scope == ceiling.scope]
        lies = sum(group.gpus + self.spares * pod for group in loaded)
        pods = self.total(unit * self.whole[h] + (self.short + self.spares) * self.last[h] for h in homes)
        self.model.addConstr(pods <= (ceiling.gpus - lies) // pod)

    def _costs(self) -> dict[str, Any]:
        """Return the costs as expressions, by the names in ORDERS."""
        free = {place: sum(node.free for node in self.nodes if node.place == place) for place in self.places}
        found = {
            "elsewhere": self.total(self.away.values()),
            "domains": self.total(self.used.values()),
            "free": self.total(free[place] * used for place, used in self.used.items()),
        }
        for name, depth in LEVELS.items():
            units = {place[:depth]: self.model.addBinary() for place in self.places}
            for place, used in self.used.items():
                self.model.addConstr(used <= units[place[:depth]])
            found[name] = self.total(units.values())
        return found
