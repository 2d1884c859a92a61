"""Convert between API objects and values of the planner: a Run to a request, a plan to a PlacementPlan and back.

Names of nodes are folded in a PlacementPlan. A plan that another build wrote is read by the same rules.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple, cast

from msgspec import structs

from gkm.api import plans
from gkm.api.node_names import fold, unfold
from gkm.api.runs import MAX_GPUS, RunAreaRule, RunMalleability, RunSpec
from gkm.packing.values import (
    AREAS,
    AreaRule,
    Ceiling,
    Distance,
    Group,
    Level,
    Location,
    Malleability,
    Plan,
    Policy,
    Request,
    Share,
    Spare,
    Within,
)
from gkm.topology.eligibility import NodeDemand, PodDemand
from gkm.topology.nodes import DEFAULT_TOLERATIONS, thousandths

if TYPE_CHECKING:
    from gkm.api.runs import AreaName

    # it imports numpy
    from gkm.packing.fragmentation import Fragmentation, Row


def demand(spec: RunSpec) -> NodeDemand:
    """Return which nodes a Run may use, from its spec.

    Raises:
        ValueError: two of its scopes share a name, or a request is no quantity.
    """
    tolerations = DEFAULT_TOLERATIONS if spec.tolerations is None else tuple(spec.tolerations)
    return NodeDemand(spec.flavor, spec.selector, tuple(spec.scopes), tolerations, pod_of(spec))


def request(run: RunSpec | plans.PlanRequest, policy: str) -> Request:
    """Return the request for the planner: the sizes in the spec of a Run or of its plan.

    Raises:
        ValueError: the sizes do not divide; the message is one sentence.
    """
    malleable, within = run.malleability, run.within
    rules = _area_rules(run.per_area, run.apart if isinstance(run, RunSpec) else None)
    return Request(
        gpus=run.gpus,
        pod_gpus=run.gpus_per_pod,
        group_gpus=run.group_gpus or run.gpus_per_pod,
        spares=run.spares,
        may_spread=run.allow_cross_group_spread and within != "domain",
        policy=Policy(policy),
        ceilings=tuple(Ceiling(scope.name, scope.max_gpus) for scope in run.scopes),
        malleability=Malleability(malleable.step_gpus, malleable.min_gpus) if malleable else None,
        within=Within(within) if within and within != "domain" else None,
        balanced=run.balanced,
        per_area=rules,
    )


def _area_rules(rules: Iterable[RunAreaRule], apart: str | None) -> tuple[AreaRule, ...]:
    """Return the rules for areas, the smallest areas first; groups that lie apart are a rule.

    Raises:
        ValueError: a rule has no number, or a level is there twice.
    """
    found: list[AreaRule] = []
    for rule in rules:
        numbers = rule.max_groups, rule.max_nodes, rule.groups_together
        if numbers == (None, None, None):
            raise ValueError(f"the rule for each {rule.level} has none of maxGroups, maxNodes and groupsTogether")
        found.append(AreaRule(Level(rule.level), rule.max_groups, rule.max_nodes, rule.groups_together or 1))
    if apart is not None:
        same = [rule for rule in found if rule.level == apart] or [AreaRule(Level(apart))]
        found = [rule for rule in found if rule.level != apart] + [replace(rule, max_groups=1) for rule in same]
    return tuple(sorted(found, key=lambda rule: AREAS.index(rule.level)))


def pod_of(spec: RunSpec) -> PodDemand:
    """Return the GPUs and the CPU and memory requests of one pod of a Run.

    Raises:
        ValueError: a quantity is invalid.
    """
    cpu, memory = spec.requests.cpu, spec.requests.memory
    return PodDemand(
        spec.gpus_per_pod,
        None if cpu is None else thousandths(cpu, "CPUs"),
        None if memory is None else thousandths(memory, "bytes"),
    )


class PlanUnreadable(ValueError):
    """A PlacementPlan is invalid, so the planner did not write it; the message names the group."""


def plan_spec(plan: Plan, flavor: str, fragmentation: plans.PlanFragmentation | None = None) -> plans.PlanSpec:
    """Return a plan as the spec of a PlacementPlan, without Run, number and expiry, which only a cluster knows.

    Raises:
        ValueError: Kubernetes does not allow the name of a node.
    """
    run = plan.request
    malleable = run.malleability
    return plans.PlanSpec(
        hash=plan.hash,
        inventory_version=plan.inventory_version,
        policy=run.policy.value,
        flavor=flavor,
        gpus=plan.gpus,
        request=plans.PlanRequest(
            gpus=run.gpus,
            gpus_per_pod=run.pod_gpus,
            group_gpus=run.group_gpus,
            allow_cross_group_spread=run.may_spread,
            within=run.within.value if run.within else None,
            balanced=run.balanced,
            per_area=[
                RunAreaRule(
                    cast("AreaName", rule.level.value),
                    rule.max_groups,
                    rule.max_nodes,
                    rule.multiple if rule.multiple > 1 else None,
                )
                for rule in run.per_area
            ],
            spares=run.spares,
            malleability=RunMalleability(malleable.step_gpus, malleable.min_gpus) if malleable else None,
            scopes=[plans.PlanScope(ceiling.scope, ceiling.gpus) for ceiling in run.ceilings],
        ),
        groups=list(_planned_groups(plan.groups)),
        metrics=structs.replace(plan.metrics, fragmentation=fragmentation),
    )


def plan_fragmentation(found: "Fragmentation") -> plans.PlanFragmentation:
    """Return the fragmentation after a plan for the spec of a PlacementPlan: totals, and figures by level."""
    levels = {"region": found.regions, "cluster": found.clusters, "block": found.blocks, "domain": found.domains}
    return plans.PlanFragmentation(
        found.expected_unusable_gpus,
        found.largest_group,
        found.free_gpus,
        [_level(name, rows) for name, rows in levels.items() if rows],
    )


def _level(name: str, rows: Sequence["Row"]) -> plans.PlanLevel:
    worst = max(rows, key=lambda row: row.expected_unusable_gpus)
    unusable = worst.expected_unusable_gpus
    most = max(row.free_gpus for row in rows)
    return plans.PlanLevel(name, len(rows), most, unusable, "/".join(worst.place) if unusable else "")


def groups_of(spec: plans.PlanSpec) -> tuple[Group, ...]:
    """Return the groups in the spec of a PlacementPlan, sorted by index.

    Raises:
        PlanUnreadable: `plan_spec` writes no such names, distances or numbers, or a plan of that size has fewer.
    """
    # Before any name is read: a few bytes of text can say a million names.
    if sum(group.gpus * group.count for group in spec.groups) > spec.gpus:
        raise PlanUnreadable(f"its groups have more than the {spec.gpus} GPUs of the plan")
    found: list[Group] = []
    spares = MAX_GPUS
    for group in spec.groups:
        try:
            some = list(_groups_of_entry(group, spec.request, spares))
        except ValueError as error:
            raise PlanUnreadable(f"group {group.index}: {error}") from error
        spares -= sum(spare.gpus for one in some for spare in one.spares)
        found += some
    # A run that became smaller keeps the numbers of the groups that stay: some may be missing, and each comes once.
    if any(one.index >= two.index for one, two in pairwise(found)):
        raise PlanUnreadable("groups do not come in the order of their numbers")
    return tuple(found)


def gpus_by_node(spec: plans.PlanSpec) -> Counter[str]:
    """Return the number of GPUs that a PlacementPlan uses on each node, spares included.

    Raises:
        PlanUnreadable: names are invalid.
    """
    taken: Counter[str] = Counter()
    for group in groups_of(spec):
        for share in group.shares:
            taken[share.node] += share.gpus
    return taken


class _GroupShape(NamedTuple):
    """The common part of the groups of one entry: all but their number and the names of their nodes.

    `nodes` are the GPUs on a node and how many such nodes there are, `spares` the same for each domain and distance.
    """

    gpus: int
    place: Location
    scope: str
    nodes: tuple[tuple[int, int], ...]
    spares: tuple[tuple[str, Distance, int, int], ...]


def _planned_groups(groups: Iterable[Group]) -> Iterator[plans.PlannedGroup]:
    """Yield entries, each of groups that follow each other by number and are of one shape."""
    shaped = enumerate((group.index, *_shaped(group)) for group in groups)
    for (_, shape), run in groupby(shaped, lambda item: (item[1][0] - item[0], item[1][1])):
        alike = [group for _, group in run]
        # The names of each row of the shape, of all groups together: nodes first, then spares.
        names = iter([fold(list(chain(*some))) for some in zip(*(names for _, _, names in alike), strict=True)])
        yield plans.PlannedGroup(
            index=alike[0][0],
            count=len(alike),
            gpus=shape.gpus,
            region=shape.place.region,
            cluster=shape.place.cluster,
            block=shape.place.block,
            domain=shape.place.domain,
            nodes=[plans.NodeShare(next(names), gpus) for gpus, _ in shape.nodes],
            scope=shape.scope,
            spares=[
                plans.SpareShare(next(names), gpus, domain, distance.value)
                for domain, distance, gpus, _ in shape.spares
            ],
        )


def _shaped(group: Group) -> tuple[_GroupShape, list[list[str]]]:
    """Return the shape of a group, and the names of the nodes of each of its rows."""
    nodes: dict[int, list[str]] = {}
    for share in group.nodes:
        nodes.setdefault(share.gpus, []).append(share.node)
    on_nodes: Counter[tuple[Location, Distance, str]] = Counter()
    for spare in group.spares:
        on_nodes[spare.place, spare.distance, spare.node] += spare.gpus
    spares: dict[tuple[str, Distance, int], list[str]] = {}
    for (place, distance, node), gpus in sorted(on_nodes.items()):
        spares.setdefault(("/".join(place), distance, gpus), []).append(node)
    shape = _GroupShape(
        group.gpus,
        group.place,
        group.scope,
        tuple((gpus, len(names)) for gpus, names in nodes.items()),
        tuple((*key, len(names)) for key, names in spares.items()),
    )
    return shape, [*nodes.values(), *spares.values()]


def _groups_of_entry(entry: plans.PlannedGroup, request: plans.PlanRequest, most_spares: int) -> Iterator[Group]:
    """Yield the groups of an entry; `most_spares` are the GPUs that its spares may have, all together."""
    pod_gpus = request.gpus_per_pod
    place = Location(entry.region, entry.cluster, entry.block, entry.domain)
    left, count = entry.gpus * entry.count, entry.count
    nodes = []
    for share in entry.nodes:
        if share.gpus * count > left:
            raise ValueError(f"the nodes of this group have more GPUs than its {entry.gpus} GPUs")
        nodes.append((share.gpus, _names_by_group(share.name, count, left // share.gpus)))
        left -= share.gpus * count * len(nodes[-1][1][0])
    left = min(most_spares, request.spares * pod_gpus * count)
    spares = []
    for spare in entry.spares:
        if spare.gpus * count > left:
            raise ValueError(f"it has more than {request.spares} spares of {pod_gpus} GPUs")
        spares.append((spare, _names_by_group(spare.node, count, left // spare.gpus)))
        left -= spare.gpus * count * len(spares[-1][1][0])
    for number in range(count):
        shares = [Share(name, gpus) for gpus, of_groups in nodes for name in of_groups[number]]
        if sum(share.gpus for share in shares) != entry.gpus:
            raise ValueError(f"its nodes give {sum(share.gpus for share in shares)} GPUs, and it has {entry.gpus}")
        ready = tuple(
            Spare(name, pod_gpus, _location(share.domain), Distance(share.distance))
            for share, of_groups in spares
            for name in of_groups[number]
            for _ in range(share.gpus // pod_gpus)
        )
        yield Group(entry.index + number, entry.gpus, place, entry.scope, tuple(sorted(shares)), ready)


def _names_by_group(text: str, count: int, most: int) -> list[tuple[str, ...]]:
    """Return the names for each of so many groups, at most `most` in all."""
    names = unfold(text, most)
    each, rest = divmod(len(names), count)
    if rest:
        raise ValueError(f"{len(names)} nodes are not dealt out evenly to {count} groups")
    return [names[number * each : (number + 1) * each] for number in range(count)]


def _location(text: str) -> Location:
    parts = text.split("/")
    if len(parts) != len(Location._fields):
        raise ValueError(f"{text[:80]!a} is no region/cluster/block/domain")
    return Location(*parts)
