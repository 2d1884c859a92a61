"""Check every finished plan against the nodes and the request, independent of how it was found.

The planners prove their plans by argument; this module adds up what they wrote, and looks up where it lies. A plan that
exceeds a node, a ceiling or the size of its run, or lies elsewhere than it claims, would stop the runs of others, so it
is raised as an error and never returned.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from gkm.api.grammar import count_of
from gkm.packing.inventory import Inventory
from gkm.packing.values import Group, Location, Node, Request


class InvalidPlanError(RuntimeError):
    """The planner made an invalid plan: a defect of GKM, not of the run."""


def verify(inventory: Inventory, request: Request, groups: Sequence[Group]) -> None:
    """Check that a plan's sums are right, and that its nodes have the places and free GPUs that the plan uses.

    Group numbers may have gaps, since a malleable run that becomes smaller leaves numbers out.

    Raises:
        InvalidPlanError: the first error that was found.
    """
    problem = next(_problems(inventory, request, groups), None)
    if problem:
        raise InvalidPlanError(
            f"the planner made an invalid plan: {problem}; it was not used. "
            "Report this with the node list and the run as a defect of GKM"
        )


def _problems(inventory: Inventory, request: Request, groups: Sequence[Group]) -> Iterator[str]:
    yield from _sizes(request, groups)
    taken: Counter[str] = Counter()
    scopes: Counter[str] = Counter()
    for group in groups:
        given = 0
        for name, gpus in group.nodes:
            taken[name] += gpus
            given += gpus
        if given != group.gpus:
            yield f"group {group.index} has {count_of(group.gpus, 'GPU')} and its nodes give {given}"
        if len(group.spares) > request.spares:
            yield f"group {group.index} has {count_of(len(group.spares), 'spare')} instead of {request.spares}"
        for spare in group.spares:
            taken[spare.node] += spare.gpus
            given += spare.gpus
        scopes[group.scope] += given
    yield from _exceeded(inventory, request, taken, scopes)
    yield from _elsewhere(inventory, request, groups)
    yield from _areas(request, groups)
    yield from _rules(inventory, request, groups)


def _sizes(request: Request, groups: Sequence[Group]) -> Iterator[str]:
    indexes = [group.index for group in groups]
    if indexes != sorted(set(indexes)):
        yield "a group number is there twice or out of order"
    if len(groups) != request.groups:
        yield f"it has {count_of(len(groups), 'group')} instead of {request.groups}"
    if sum(group.gpus for group in groups) != request.gpus:
        yield f"it has {count_of(sum(group.gpus for group in groups), 'GPU')} instead of {request.gpus}"
    whole = request.gpus // request.group_gpus
    if sum(group.gpus == request.group_gpus for group in groups) != whole:
        yield f"not {whole} of its groups have {count_of(request.group_gpus, 'GPU')}"


def _exceeded(inventory: Inventory, request: Request, taken: Counter[str], scopes: Counter[str]) -> Iterator[str]:
    for name, gpus in taken.items():
        number = inventory.numbers.get(name)
        free = 0 if number is None else inventory.nodes[number].free
        if number is None:
            yield f"it takes {count_of(gpus, 'GPU')} of node {name}, which is not there"
        if gpus > free:
            yield f"it takes {count_of(gpus, 'GPU')} of node {name}, which has {free} free"
    for ceiling in request.ceilings:
        if scopes[ceiling.scope] > ceiling.gpus:
            gives = count_of(scopes[ceiling.scope], "GPU")
            yield f"scope {ceiling.scope} gives {gives} and has a ceiling of {ceiling.gpus}"


def _elsewhere(inventory: Inventory, request: Request, groups: Sequence[Group]) -> Iterator[str]:
    """Yield what lies in another place or scope than the plan says. All nodes exist."""
    names = set(request.scope_names)
    for group in groups:
        if group.scope not in names:
            yield f"group {group.index} lies in scope {group.scope!r}, which the run does not have"
        for name, gpus in group.nodes:
            node = inventory.nodes[inventory.numbers[name]]
            if problem := _misplaced(request, group, node, group.place, gpus):
                yield f"group {group.index} {problem}"
        for spare in group.spares:
            node = inventory.nodes[inventory.numbers[spare.node]]
            if problem := _misplaced(request, group, node, spare.place, spare.gpus):
                yield f"a spare of group {group.index} {problem}"


def _misplaced(request: Request, group: Group, node: Node, place: Location, gpus: int) -> str:
    """Return why pods cannot be on a node; "" if they can."""
    if node.place != place:
        return f"lies in {'/'.join(place)}, and its node {node.name} in {'/'.join(node.place)}"
    if group.scope and group.scope not in node.scopes:
        return f"belongs to scope {group.scope}, which node {node.name} is not in"
    if gpus < 1 or gpus % request.pod_gpus:
        return f"takes {count_of(gpus, 'GPU')} of node {node.name}, and pods have {request.pod_gpus}"
    return ""


def _areas(request: Request, groups: Sequence[Group]) -> Iterator[str]:
    """Yield where a run lies in several areas that has to stay in one, or has unequal shares and has to have equal."""
    depth = request.depth
    used = Counter(group.place for group in groups)
    areas = {place[:depth] for place in used} | {one.place[:depth] for group in groups for one in group.spares}
    if len(areas) > 1:
        level = "domain" if request.within is None or not request.may_spread else request.within
        yield f"it lies in {count_of(len(areas), level)}, and the run must stay in one"
    if request.balanced and len(set(used.values())) > 1:
        yield f"its domains have {min(used.values())} to {max(used.values())} groups, and all must have as many"


def _rules(inventory: Inventory, request: Request, groups: Sequence[Group]) -> Iterator[str]:
    """Yield which area breaks the rule of its level. All nodes exist."""
    for rule in request.per_area:
        areas = inventory.areas(rule.level).tolist()
        area_of = {group.index: areas[inventory.domains[group.place]] for group in groups}
        if -1 in area_of.values():
            yield f"a group lies in no single known {rule.level}, and the run has a rule for each"
        most = max(Counter(area_of.values()).values(), default=0)
        if rule.max_groups is not None and most > rule.max_groups:
            yield f"a {rule.level} has {count_of(most, 'group')}, and at most {rule.max_groups} may lie in one"
        used = {share.node for group in groups for share in group.shares}
        nodes = Counter(areas[inventory.domain_of[inventory.numbers[name]]] for name in used)
        most = max(nodes.values(), default=0)
        if rule.max_nodes is not None and most > rule.max_nodes:
            yield f"it takes {count_of(most, 'node')} of a {rule.level}, and may take {rule.max_nodes}"
        layers = {(index // rule.multiple, area) for index, area in area_of.items()}
        if rule.multiple > 1 and len(layers) > len({layer for layer, _ in layers}):
            yield f"not all {rule.multiple} groups of a layer lie in one {rule.level}"
