"""How a plan lays its groups out on the nodes of each domain, against the best layout of the same groups there.

The best layout has the fewest spares that share a node with their own group, and then the fewest nodes a group. What is
held is what costs more: which groups lie in a domain and in which scope, and how many spares of which group lie there.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import highspy
from gkm.packing.values import Group, Location, Node, Request
from support.packing.costs import usable
from support.packing.reference import INFEASIBLE, UnprovenError


class Layout(NamedTuple):
    """Spares that share a node with their own group, and pairs of a group and a node, of one domain or all."""

    shared: int
    pairs: int


def layout_of(groups: Sequence[Group]) -> Layout:
    """Return how groups are laid out."""
    shared = sum(spare.node in {name for name, _ in group.nodes} for group in groups for spare in group.spares)
    return Layout(shared, sum(len(group.nodes) for group in groups))


def best_layout(nodes: Sequence[Node], request: Request, groups: Sequence[Group]) -> Layout:
    """Return the best layout of groups that lie in these domains, all domains together.

    Raises:
        UnprovenError: a domain is too large for HiGHS.
    """
    best = [_best(nodes, request, groups, place) for place in sorted({group.place for group in groups})]
    return Layout(sum(layout.shared for layout in best), sum(layout.pairs for layout in best))


def _best(nodes: Sequence[Node], request: Request, groups: Sequence[Group], place: Location) -> Layout:
    pod = request.pod_gpus
    here = [group for group in groups if group.place == place]
    names = {node.name: node for node in usable(nodes, request) if node.place == place and node.free >= pod}
    foreign = Counter(g.scope for g in groups if g.place != place for spare in g.spares if spare.place == place)
    found = layout_of([_within(group) for group in here])
    if found.shared == 0 and found.pairs == len(here):
        return found  # no layout is better
    return _solved(names, request, here, foreign)


def _within(group: Group) -> Group:
    return Group(group.index, group.gpus, group.place, group.scope, group.nodes, _home(group))


def _home(group: Group) -> tuple[Any, ...]:
    return tuple(spare for spare in group.spares if spare.place == group.place)


def _solved(names: dict[str, Node], request: Request, here: Sequence[Group], foreign: Counter[str]) -> Layout:
    model: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    model.silent()
    for option, value in (("mip_rel_gap", 0.0), ("mip_abs_gap", 0.0), ("threads", 1), ("time_limit", 20.0)):
        model.setOptionValue(option, value)
    slots = {name: node.free // request.pod_gpus for name, node in names.items()}
    taken: dict[str, list[Any]] = {name: [] for name in names}
    on: list[Any] = []
    shared: list[Any] = []
    for group in here:
        pods, ready = group.gpus // request.pod_gpus, len(_home(group))
        some = [name for name, node in names.items() if not group.scope or group.scope in node.scopes]
        placed, spares = [], []
        for name in some:
            placed.append(model.addIntegral(lb=0, ub=min(pods, slots[name])))
            spares.append(model.addIntegral(lb=0, ub=min(ready, slots[name])))
            on.append(model.addBinary())
            model.addConstr(placed[-1] <= min(pods, slots[name]) * on[-1])
            if ready:
                shared.append(model.addIntegral(lb=0, ub=ready))
                model.addConstr(spares[-1] - shared[-1] + ready * on[-1] <= ready)
            taken[name] += [placed[-1], spares[-1]]
        model.addConstr(model.qsum(placed) == pods)
        model.addConstr(model.qsum(spares) == ready)
    for scope, count in foreign.items():
        some = [name for name, node in names.items() if not scope or scope in node.scopes]
        ready_here = [model.addIntegral(lb=0, ub=count) for _ in some]
        model.addConstr(model.qsum(ready_here) == count)
        for name, variable in zip(some, ready_here, strict=True):
            taken[name].append(variable)
    for name, variables in taken.items():
        if variables:
            model.addConstr(model.qsum(variables) <= slots[name])
    least_shared = _least(model, shared) if shared else 0
    if shared:
        model.addConstr(model.qsum(shared) <= least_shared)
    return Layout(least_shared, _least(model, on))


def _least(model: Any, parts: list[Any]) -> int:  # noqa: ANN401 highspy has no types for its models' variables
    model.minimize(model.qsum(parts))
    status = model.getModelStatus()
    assert status not in INFEASIBLE, "the layout of the plan is one"
    if status != highspy.HighsModelStatus.kOptimal:
        raise UnprovenError(str(status))
    least: int = round(model.getInfo().objective_function_value)
    return least
