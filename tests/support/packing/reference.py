"""The least cost of a plan as an integer program for HiGHS: docs/reference/calculus.md, with scopes.

It shares the values of `gkm.packing` and nothing else with the planner. A variable counts the groups of a domain and
scope, and slots are those of nodes alike: the nodes of one domain that the same scopes take. That is exact, since pods
of one run are alike, and a slot is a slot. The parts of the cost are minimized one after another, each held at its
least before the next, in the order of the policy.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, NamedTuple

import highspy
from gkm.packing.values import MAX_GPUS, Ceiling, Group, Location, Node, Request
from support.packing.costs import ORDERS, Cost, usable

Home = tuple[Location, str]
Expression = Any
"""A sum of variables: highspy has no types for them."""
INFEASIBLE = (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible)
"""All variables are bounded, so the second is the first."""
ANY = Ceiling("", MAX_GPUS)
LEVELS = {"regions": 1, "clusters": 2, "blocks": 3}


class UnprovenError(RuntimeError):
    """HiGHS proved neither an optimum nor that there is none."""


class Minimum(NamedTuple):
    """The least value that HiGHS found, and a letter for what it proved.

    O: no value is less. F: it is the best that was found in time. I: the run does not fit. -: time was up.
    """

    state: str
    value: int | None


def least_cost(nodes: Sequence[Node], request: Request) -> Cost | None:
    """Return the cost of the best plan of a run, None where the run does not fit. No malleable runs.

    Raises:
        UnprovenError: the case is too large for HiGHS.
    """
    program = IntegerProgram(nodes, request)
    order = ORDERS[request.policy]
    found = program.least([program.costs[name] for name in order])
    return None if found is None else Cost(**dict(zip(order, found, strict=True)))


class Program:
    """A program for HiGHS whose parts are minimized one after another."""

    def __init__(self) -> None:
        self.model: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        self.model.silent()
        for option, value in (("mip_rel_gap", 0.0), ("mip_abs_gap", 0.0), ("threads", 1)):
            self.model.setOptionValue(option, value)
        self.nothing = self.model.addIntegral(lb=0, ub=0)

    def least(self, parts: Sequence[Expression]) -> list[int] | None:
        """Return the least of the parts, one after another; None where the run does not fit.

        Raises:
            UnprovenError: the case is too large for HiGHS.
        """
        found: list[int] = []
        for part in parts:
            state, value = self.minimum(part)
            if state == "I" and not found:
                return None
            if state != "O" or value is None:
                raise UnprovenError(str(self.model.getModelStatus()))
            found.append(value)
        return found

    def minimum(self, part: Expression, seconds: float = highspy.kHighsInf) -> Minimum:
        """Return the least of a part that is found within `seconds`, and hold the part at it."""
        # HiGHS counts the time of all that one model was solved for.
        self.model.setOptionValue("time_limit", self.model.getRunTime() + seconds)
        self.model.minimize(part)
        if self.model.getModelStatus() in INFEASIBLE:
            # The presolve of HiGHS 1.15.1 drops all solutions of some programs: seed 18701 of the draws.
            self.model.setOptionValue("presolve", "off")
            self.model.run()
            self.model.setOptionValue("presolve", "choose")
        state = self._state()
        if state not in ("O", "F"):
            return Minimum(state, None)
        value = round(self.model.getInfo().objective_function_value)
        self.model.addConstr(part <= value)
        return Minimum(state, value)

    def total(self, terms: Iterable[Any]) -> Expression:
        """Return a sum as an expression, of nothing too."""
        return self.model.qsum([*terms, 0 * self.nothing])

    def _state(self) -> str:
        """Return the letter of the last solution."""
        status = self.model.getModelStatus()
        if status in INFEASIBLE:
            return "I"
        if status == highspy.HighsModelStatus.kOptimal:
            return "O"
        feasible = self.model.getInfo().primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        return "F" if feasible else "-"


class IntegerProgram(Program):
    """A run on some nodes. `spares` a group are placed; the groups of `load` lie where they lie."""

    def __init__(
        self, nodes: Sequence[Node], request: Request, *, spares: int | None = None, load: Sequence[Group] = ()
    ) -> None:
        super().__init__()
        self.nodes, self.request, self.load = usable(nodes, request), request, tuple(load)
        self.spares = request.spares if spares is None else spares
        self.ceilings = request.ceilings or (ANY,)
        self.places = sorted({node.place for node in self.nodes})
        self.homes: list[Home] = list(product(self.places, (ceiling.scope for ceiling in self.ceilings)))
        self.slots = self._slots()
        short = request.last_pods if request.last_pods < request.group_pods else 0
        loaded_short = any(group.index == request.groups - 1 for group in load) and bool(short)
        self.short = 0 if loaded_short else short
        self.whole_count = request.groups - len(load) - bool(self.short)
        self.loaded = {home: sum((group.place, group.scope) == home for group in load) for home in self.homes}
        self._variables()
        self._place_all()
        self._give_slots()
        for ceiling in self.ceilings:
            self._bind(ceiling)
        self.costs = self._costs()

    def _slots(self) -> dict[tuple[Location, frozenset[str]], int]:
        """Return the slots that the load leaves, by domain and by the scopes that take them."""
        pod = self.request.pod_gpus
        taken = {node.name: 0 for node in self.nodes}
        for group in self.load:
            for name, gpus in group.nodes:
                taken[name] += gpus // pod
        names = {ceiling.scope for ceiling in self.ceilings}
        found: dict[tuple[Location, frozenset[str]], int] = {}
        for node in self.nodes:
            kind = node.place, node.scopes & names or frozenset({ANY.scope})
            found[kind] = found.get(kind, 0) + node.free // pod - taken[node.name]
        return found

    def _variables(self) -> None:
        """Add the groups of each home: whole ones, the short one, and those with spares outside their domain."""
        size, integral = self.request.group_pods, self.model.addIntegral
        room = dict.fromkeys(self.homes, 0)
        for (place, scopes), count in self.slots.items():
            for scope in scopes:
                room[place, scope] += max(0, count)
        leave = bool(self.spares) and self.request.may_spread
        self.most = {home: min(self.whole_count, room[home] // size) for home in self.homes}
        self.whole = {home: integral(lb=0, ub=most) for home, most in self.most.items()}
        self.last = {home: integral(lb=0, ub=int(0 < self.short <= room[home])) for home in self.homes}
        self.away = {home: integral(lb=0, ub=self.request.groups if leave else 0) for home in self.homes}
        self.used = {place: self.model.addBinary() for place in self.places}

    def _place_all(self) -> None:
        """Every group lies in one home, and a domain with a group is used."""
        self.model.addConstr(self.total(self.whole.values()) == self.whole_count)
        self.model.addConstr(self.total(self.last.values()) == (1 if self.short else 0))
        for home in self.homes:
            used = self.used[home[0]]
            self.model.addConstr(self.away[home] <= self.whole[home] + self.last[home] + self.loaded[home])
            self.model.addConstr(self.whole[home] <= self.most[home] * used)
            self.model.addConstr(self.last[home] <= used)
            if self.loaded[home]:
                self.model.addConstr(used >= 1)
        if not self.request.may_spread:
            self.model.addConstr(self.total(self.used.values()) <= 1)

    def _give_slots(self) -> None:
        """Bind pods and the spares beside them to slots of their domain, and other spares to slots of their scope."""
        self.taken: dict[tuple[Location, frozenset[str]], Expression] = {}
        near: dict[Home, list[Any]] = {home: [] for home in self.homes}
        far: dict[str, list[Any]] = {ceiling.scope: [] for ceiling in self.ceilings}
        for (place, scopes), count in self.slots.items():
            here = []
            for scope in scopes:
                pods = self.model.addIntegral(lb=0, ub=max(0, count))
                ready = self.model.addIntegral(lb=0, ub=max(0, count))
                near[place, scope].append(pods)
                far[scope].append(ready)
                here += [pods, ready]
            self.taken[place, scopes] = self.total(here)
            self.model.addConstr(self.taken[place, scopes] <= count)
        for home, given in near.items():
            groups = self.whole[home] + self.last[home]
            pods = self.request.group_pods * self.whole[home] + self.short * self.last[home]
            stay = self.spares * (groups + self.loaded[home] - self.away[home])
            self.model.addConstr(self.total(given) - pods - stay == 0)
        for scope, given in far.items():
            leave = self.spares * self.total(self.away[home] for home in self.homes if home[1] == scope)
            self.model.addConstr(self.total(given) - leave == 0)

    def _bind(self, ceiling: Ceiling) -> None:
        """Hold what a scope gives to its ceiling, spares included."""
        pod, unit = self.request.pod_gpus, self.request.group_pods + self.spares
        loaded = [group for group in self.load if group.scope == ceiling.scope]
        lies = sum(group.gpus + self.spares * pod for group in loaded)
        homes = [home for home in self.homes if home[1] == ceiling.scope]
        pods = self.total(unit * self.whole[h] + (self.short + self.spares) * self.last[h] for h in homes)
        self.model.addConstr(pods <= (ceiling.gpus - lies) // pod)

    def _costs(self) -> dict[str, Expression]:
        """Return the parts of the cost, by the names in ORDERS."""
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
