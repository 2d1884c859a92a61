"""Is a plan one that could be carried out? Its sums, held against the nodes and the run, and nothing about its cost.

It shares the values of `gkm.packing` and nothing else with the planner, and holds for plans and re-plans alike.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from gkm.packing.values import Group, Node, Request


def invalid(nodes: Sequence[Node], request: Request, groups: Sequence[Group], *, spares_may_lack: bool) -> list[str]:
    """Return what is wrong with the groups of a plan, each in one sentence. No malleable runs."""
    known = {node.name: node for node in nodes}
    names = {name for name, _ in _shares(groups)}
    if names - set(known):
        return [f"nodes {sorted(names - set(known))} are not in the inventory"]
    found = [*_sizes(request, groups), *_ceilings(request, groups), *_capacities(known, groups)]
    for group in groups:
        found += _cohesion(known, request, group)
        found += _spares(known, request, group, spares_may_lack=spares_may_lack)
    places = {known[name].place for name in names}
    if not request.may_spread and len(places) > 1:
        found.append(f"the run may not spread, and takes nodes of {len(places)} domains")
    return found


def _shares(groups: Sequence[Group]) -> Iterator[tuple[str, int]]:
    for group in groups:
        yield from group.nodes
        yield from ((spare.node, spare.gpus) for spare in group.spares)


def _sizes(request: Request, groups: Sequence[Group]) -> Iterator[str]:
    count = -(-request.gpus // request.group_gpus)
    sizes = [request.group_gpus] * (count - 1) + [request.gpus - (count - 1) * request.group_gpus]
    if [group.index for group in groups] != list(range(count)):
        yield f"groups are numbered {[group.index for group in groups]}, not 0 to {count - 1}"
    if [group.gpus for group in groups] != sizes:
        yield f"groups have {[group.gpus for group in groups]} GPUs, not {sizes}"


def _ceilings(request: Request, groups: Sequence[Group]) -> Iterator[str]:
    given: Counter[str] = Counter()
    for group in groups:
        given[group.scope] += sum(gpus for _, gpus in _shares([group]))
    for ceiling in request.ceilings:
        if given[ceiling.scope] > ceiling.gpus:
            yield f"scope {ceiling.scope} gives {given[ceiling.scope]} GPUs, and at most {ceiling.gpus}"


def _capacities(known: dict[str, Node], groups: Sequence[Group]) -> Iterator[str]:
    taken: Counter[str] = Counter()
    for name, gpus in _shares(groups):
        taken[name] += gpus
    for name, gpus in sorted(taken.items()):
        if gpus > known[name].free:
            yield f"node {name} gives {gpus} GPUs and has {known[name].free}"


def _cohesion(known: dict[str, Node], request: Request, group: Group) -> Iterator[str]:
    """Say where a group is not whole pods of one domain and of one scope."""
    if sum(gpus for _, gpus in group.nodes) != group.gpus:
        yield f"group {group.index} has {group.gpus} GPUs, and its nodes give another number"
    if len({name for name, _ in group.nodes}) < len(group.nodes):
        yield f"group {group.index} names a node twice"
    if group.scope not in ({ceiling.scope for ceiling in request.ceilings} or {""}):
        yield f"group {group.index} lies in scope {group.scope!r}, which the run does not have"
    for name, gpus in group.nodes:
        if gpus < 1 or gpus % request.pod_gpus:
            yield f"group {group.index} takes {gpus} GPUs of {name}, which are no whole pods"
        if known[name].place != group.place:
            yield f"group {group.index} lies in {group.place}, and its node {name} in {known[name].place}"
        if group.scope and group.scope not in known[name].scopes:
            yield f"node {name} of group {group.index} is not in scope {group.scope}"


def _spares(known: dict[str, Node], request: Request, group: Group, *, spares_may_lack: bool) -> Iterator[str]:
    count = len(group.spares)
    if count > request.spares or (count < request.spares and not spares_may_lack):
        yield f"group {group.index} has {count} spares, not {request.spares}"
    for spare in group.spares:
        node = known[spare.node]
        if spare.gpus != request.pod_gpus or spare.place != node.place:
            yield f"a spare of group {group.index} on {spare.node} has another size or place than it says"
        if group.scope and group.scope not in node.scopes:
            yield f"a spare of group {group.index} on {spare.node} is not in scope {group.scope}"
