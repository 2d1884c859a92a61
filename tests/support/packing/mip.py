"""The objective of docs/design/calculus.md as a mixed-integer programme for HiGHS: another way to the same cost.

The parts of the cost are minimised one after another, each held at its least before the next. Scopes are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import highspy
from gkm.packing.values import Location, Node, Request
from support.packing.brute import Cost

_LEVELS = {"blocks": 3, "clusters": 2, "regions": 1}


@dataclass
class _Domain:
    """Slots and GPUs that are free, and the variables: groups, is the short one here, spares away, is it used."""

    place: Location
    slots: int = 0
    free: int = 0
    whole: Any = None
    last: Any = None
    away: Any = None
    used: Any = None


@dataclass(frozen=True)
class Solved:
    """What HiGHS came to. `states` has a letter for each part of the cost in the order of the policy.

    O is proven, F is the best that was found in time, and - is nothing. `cost` is None where no plan was found, which
    proves that there is none if the state is I.
    """

    cost: Cost | None
    states: str

    @property
    def proven(self) -> bool:
        """Return whether nothing is cheaper, or nothing fits."""
        return not set(self.states) & {"F", "-"}


def least_cost(nodes: Sequence[Node], request: Request) -> Cost | None:
    """Return the least cost in the order of the request's policy, or None where the run does not fit.

    Raises:
        AssertionError: HiGHS neither proved an optimum nor that there is none.
    """
    found = solved(nodes, request)
    assert found.proven, found.states
    return found.cost


def solved(nodes: Sequence[Node], request: Request, seconds: float = highspy.kHighsInf) -> Solved:
    """Return the least cost that is found, `seconds` at most being given to each part of it."""
    model = highspy.Highs()  # type: ignore[no-untyped-call]
    model.silent()
    model.setOptionValue("mip_rel_gap", 0.0)
    model.setOptionValue("threads", 1)
    domains = _domains(nodes, request)
    if not domains:
        return Solved(None, "I")
    areas = _variables(model, domains, request)
    parts = {
        "elsewhere": model.qsum(domain.away for domain in domains),
        "domains": model.qsum(domain.used for domain in domains),
        "free": model.qsum(domain.free * domain.used for domain in domains),
        **{name: model.qsum(areas[depth].values()) for name, depth in _LEVELS.items()},
    }
    found, states = dict.fromkeys(parts, 0), ""
    for name in _order(request):
        if name == "elsewhere" and not request.spares:
            continue
        # HiGHS counts the time of all that one model was solved for.
        model.setOptionValue("time_limit", model.getRunTime() + seconds)
        model.minimize(parts[name])
        state = _state(model)
        states += state
        if state in ("I", "-"):
            return Solved(None, states)
        found[name] = round(model.getObjectiveValue())
        model.addConstr(parts[name] <= found[name])
    return Solved(Cost(**found), states)


def _state(model: highspy.Highs) -> str:
    """Return what became of a run of the solver, as a letter."""
    status = model.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return "I"
    if status == highspy.HighsModelStatus.kOptimal:
        return "O"
    assert status == highspy.HighsModelStatus.kTimeLimit, status
    return "F" if model.getInfo().primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible else "-"


def _order(request: Request) -> list[str]:
    """Return the parts of the cost as the policy compares them."""
    names = {1: "elsewhere", 2: "domains", 3: "free", 4: "blocks", 5: "clusters", 6: "regions"}
    return [names[part] for part in Cost(1, 2, 3, 4, 5, 6).by(request.policy)]


def _domains(nodes: Sequence[Node], request: Request) -> list[_Domain]:
    """Return the domains that hold a group of some size; the others cost and give nothing but slots for spares."""
    found: dict[Location, _Domain] = {}
    for node in nodes:
        domain = found.setdefault(node.place, _Domain(node.place))
        domain.free += node.free
        domain.slots += node.free // request.pod_gpus
    return list(found.values())


def _variables(
    model: highspy.Highs, domains: Sequence[_Domain], request: Request
) -> dict[int, dict[tuple[str, ...], Any]]:
    """Add the variables and what binds them; return those that say whether an area is used, by depth of its level."""
    short = request.last_pods if request.last_pods != request.group_pods else 0
    whole = request.groups - bool(short)
    areas: dict[int, dict[tuple[str, ...], Any]] = {
        depth: {place: model.addBinary() for place in {domain.place[:depth]: None for domain in domains}}
        for depth in _LEVELS.values()
    }
    for domain in domains:
        most = min(whole, domain.slots // request.group_pods)
        domain.whole = model.addIntegral(lb=0, ub=most)
        domain.last = model.addIntegral(lb=0, ub=1 if 0 < short <= domain.slots else 0)
        domain.away = model.addIntegral(lb=0, ub=(most + 1) if request.may_spread else 0)
        domain.used = model.addBinary()
        pods = request.group_pods * domain.whole + short * domain.last
        model.addConstr(pods <= domain.slots)
        model.addConstr(pods + request.spares * (domain.whole + domain.last - domain.away) <= domain.slots)
        model.addConstr(domain.away <= domain.whole + domain.last)
        model.addConstr(domain.whole <= most * domain.used)
        model.addConstr(domain.last <= domain.used)
        for depth, used in areas.items():
            model.addConstr(domain.used <= used[domain.place[:depth]])
    model.addConstr(model.qsum(domain.whole for domain in domains) == whole)
    model.addConstr(model.qsum(domain.last for domain in domains) == bool(short))
    if not request.may_spread:
        model.addConstr(model.qsum(domain.used for domain in domains) <= 1)
    if sum(domain.slots for domain in domains) < _pods(request):
        model.addConstr(model.qsum(domain.whole + domain.last for domain in domains) <= -1)
    return areas


def _pods(request: Request) -> int:
    """Return the pods of the run with its spares, wherever they lie."""
    return request.gpus // request.pod_gpus + request.groups * request.spares
