"""Is a plan what it says? Every statement of a plan is worked out again from the inventory and the request.

It shares the values of `gkm.packing` and nothing else with the planner. It does not know what the best plan is
(`brute` and `reference` do), but that no plan may promise what the nodes do not have, or tell a metric that is not so.

What is taken for granted: spares lie in the scope of the group that they protect and count for its ceiling; a domain
is used where a group lies in it; nodes that no scope takes are no part of the run, so that their GPUs are not stranded;
the lower bound is one of what the policy compares first but for spares: domains, blocks or stranded GPUs.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from gkm.api.plans import PlanMetrics
from gkm.packing.values import Group, Location, Node, Plan, Policy, Request, Within
from support.packing.checker_hash import expected_hash
from support.packing.checker_spares import better_spares, false_spares


def problems(nodes: Sequence[Node], request: Request, plan: Plan) -> list[str]:
    """Return whatever is wrong with a plan, each in one sentence; nothing where all is well."""
    found = false_groups(nodes, request, plan.groups, gpus=plan.gpus)
    if strangers(nodes, plan.groups):
        return found
    found += [*_request(request, plan), *better_spares(nodes, request, plan.groups), *_metrics(nodes, request, plan)]
    if plan.hash != expected_hash(plan):
        found.append("the hash is not that of the request, the groups and the inventory's version")
    return found


def false_groups(
    nodes: Sequence[Node],
    request: Request,
    groups: Sequence[Group],
    *,
    gpus: int | None = None,
    spares_may_lack: bool = False,
) -> list[str]:
    """Return why groups cannot be what they say on these nodes, whatever they cost.

    `gpus` is the size that was planned, where it is not the one of the request.
    """
    known = {node.name: node for node in nodes}
    if unknown := strangers(nodes, groups):
        return [f"node {name} is not in the inventory" for name in unknown]
    size = request.gpus if gpus is None else gpus
    found = [*_sizes(request, size, groups), *_capacities(known, groups), *_ceilings(request, groups)]
    found += _spread(request, groups)
    for group in groups:
        found += _cohesion(known, request, group)
    found += false_spares(nodes, request, groups, may_lack=spares_may_lack)
    return found


def strangers(nodes: Sequence[Node], groups: Sequence[Group]) -> list[str]:
    """Return the nodes of groups and spares that are not in the inventory."""
    return sorted({name for name, _ in _taken(groups)} - {node.name for node in nodes})


def _taken(groups: Sequence[Group]) -> Iterator[tuple[str, int]]:
    """Yield the GPUs that groups and spares take, with their nodes."""
    for group in groups:
        yield from group.nodes
        yield from ((spare.node, spare.gpus) for spare in group.spares)


def _request(request: Request, plan: Plan) -> Iterator[str]:
    if plan.request != request:
        yield "it is a plan of another request"
    smaller = request.malleability
    cut = request.gpus - plan.gpus
    if smaller is None and cut:
        yield f"{plan.gpus} GPUs are planned, and the run has {request.gpus}"
    if smaller is not None and (cut < 0 or cut % smaller.step_gpus or (cut and plan.gpus < smaller.min_gpus)):
        yield f"{plan.gpus} GPUs are no size that the run may have"


def _sizes(request: Request, gpus: int, groups: Sequence[Group]) -> Iterator[str]:
    count = -(-gpus // request.group_gpus)
    sizes = [request.group_gpus] * (count - 1) + [gpus - (count - 1) * request.group_gpus]
    if [group.gpus for group in groups] != sizes:
        yield f"groups of {[group.gpus for group in groups]} GPUs, not of {sizes}"
    if [group.index for group in groups] != list(range(count)):
        yield "groups are not numbered from 0 on"


def _capacities(known: dict[str, Node], groups: Sequence[Group]) -> Iterator[str]:
    taken: Counter[str] = Counter()
    for name, gpus in _taken(groups):
        taken[name] += gpus
    for name, gpus in sorted(taken.items()):
        if gpus > known[name].free:
            yield f"node {name} gives {gpus} GPUs and has {known[name].free}"


def _cohesion(known: dict[str, Node], request: Request, group: Group) -> Iterator[str]:
    """Say where a group is not whole pods of one domain and of one scope."""
    named = f"group {group.index}"
    if sum(gpus for _, gpus in group.nodes) != group.gpus:
        yield f"{named} says {group.gpus} GPUs, and its nodes give another number"
    names = [name for name, _ in group.nodes]
    if names != sorted(set(names)):
        yield f"the nodes of {named} are not each there once, by name"
    if (group.scope not in {ceiling.scope for ceiling in request.ceilings}) and (request.ceilings or group.scope):
        yield f"{named} lies in scope {group.scope!r}, which the run does not have"
    for name, gpus in group.nodes:
        if gpus < 1 or gpus % request.pod_gpus:
            yield f"{named} takes {gpus} GPUs of {name}, which are no whole pods"
        if known[name].place != group.place:
            yield f"{named} lies in {group.place}, and its node {name} in {known[name].place}"
        if group.scope and group.scope not in known[name].scopes:
            yield f"node {name} of {named} is not in its scope {group.scope}"


def _ceilings(request: Request, groups: Sequence[Group]) -> Iterator[str]:
    given: Counter[str] = Counter()
    for group in groups:
        given[group.scope] += group.gpus + sum(spare.gpus for spare in group.spares)
    for ceiling in request.ceilings:
        if given[ceiling.scope] > ceiling.gpus:
            yield f"scope {ceiling.scope} gives {given[ceiling.scope]} GPUs, and at most {ceiling.gpus}"


def _spread(request: Request, groups: Sequence[Group]) -> Iterator[str]:
    places = {group.place for group in groups}
    places |= {spare.place for group in groups for spare in group.spares}
    if not request.may_spread and len(places) > 1:
        yield f"the run may not spread, and lies in {len(places)} domains"
    depth = {Within.BLOCK: 3, Within.CLUSTER: 2, Within.REGION: 1, None: 0}[request.within]
    if len({place[:depth] for place in places}) > 1:
        yield f"the run stays within a {request.within}, and lies in several"
    if request.balanced and len(set(Counter(group.place for group in groups).values())) > 1:
        yield "the run is balanced, and its domains have unequal shares"


def _metrics(nodes: Sequence[Node], request: Request, plan: Plan) -> Iterator[str]:
    """Say which metric is not what the plan does to the inventory."""
    told = plan.metrics
    used = {group.place for group in plan.groups}
    domains, blocks, stranded = len(used), len({p[:3] for p in used}), _stranded(nodes, request, plan, used)
    compared = {Policy.FEWEST_BLOCKS: blocks, Policy.LEAST_WASTE: stranded}.get(request.policy, domains)
    found = PlanMetrics(
        domains=domains,
        blocks=blocks,
        stranded_gpus=stranded,
        pristine_domains=len(used - {node.place for node in nodes if node.free < node.total}),
        spares_elsewhere=sum(any(spare.place != group.place for spare in group.spares) for group in plan.groups),
        lower_bound=told.lower_bound,
        gap=compared - told.lower_bound,
    )
    for name in PlanMetrics.__struct_fields__:
        if getattr(told, name) != getattr(found, name):
            yield f"{name} is {getattr(found, name)}, and the plan says {getattr(told, name)}"
    if not 0 <= told.lower_bound <= compared:
        yield f"a lower bound of {told.lower_bound} that is none"


def _stranded(nodes: Sequence[Node], request: Request, plan: Plan, used: set[Location]) -> int:
    """Return the GPUs that stay free in the domains where groups lie, after the plan is carried out."""
    scopes = {ceiling.scope for ceiling in request.ceilings}
    left = {node.name: node.free for node in nodes if node.place in used and (not scopes or scopes & node.scopes)}
    for name, gpus in _taken(plan.groups):
        if name in left:
            left[name] -= gpus
    return sum(left.values())
