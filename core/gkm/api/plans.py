"""PlacementPlan: the nodes for every group of a run. A plan is immutable; a newer plan supersedes it."""

from typing import Annotated

from msgspec import Meta, Struct, field

from gkm.api.caches import DateTime
from gkm.api.meta import API_VERSION, Conditions, Count, ObjectMeta, ObservedGeneration
from gkm.api.runs import AreaRules, GPUs, GPUsOrZero, Labels, PolicyName, RunMalleability, WithinName

Number = Annotated[int, Meta(ge=1, extra_json_schema={"format": "int32"})]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Nodes = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=1 << 20,
        description="Names of nodes in their order, numbers as ranges: gpu-[001-018,020]; n1*8 is n1 eight times.",
    ),
]


class NodeShare(Struct, frozen=True):
    """Nodes of a group, and the GPUs that the group uses on each."""

    name: Nodes
    gpus: GPUs
    """GPUs that the group uses on each of these nodes."""


class SpareShare(Struct, frozen=True):
    """Spare GPUs on nodes of one domain; `distance` names the part of the topology that they share with their group."""

    node: Nodes
    gpus: GPUs
    """Spare GPUs on each of these nodes."""
    domain: str
    """Fabric domain of these nodes."""
    distance: str
    """Smallest part of the topology that they share with the group: domain, rack, block, cluster, region or `none`."""


class PlannedGroup(Struct, frozen=True, omit_defaults=True):
    """A group in one domain, and in one scope if the run has scopes.

    `count` consecutive groups of the same shape form one entry. `gpus` is the size of each. Each list of nodes divides
    into `count` equal parts in order, one part for each group.
    """

    index: Count
    """Number of the group, from 0; for an entry of several groups, of the first."""
    gpus: GPUs
    """GPUs of each group, without spares."""
    region: str
    """Region of the group."""
    cluster: str
    """Cluster of the group."""
    block: str
    """Block of the group."""
    domain: str
    """Fabric domain of the group."""
    nodes: list[NodeShare]
    """Nodes of the group, with the GPUs that it uses on each."""
    count: Number = 1
    """Number of consecutive groups of the same shape in this entry."""
    scope: str = ""
    """Scope of the run that contains the group; empty for a run without scopes."""
    spares: list[SpareShare] = field(default_factory=list)
    """Nodes with spare GPUs for the group."""


class PlanScope(Struct, frozen=True):
    """A scope of the run at the time of planning."""

    name: str
    """Name of the scope in the run."""
    max_gpus: GPUsOrZero = field(name="maxGPUs")
    """Maximum of GPUs in the scope, spares included."""


class PlanRequest(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The planned request: the sizes of the run with every default filled in. The hash covers them."""

    gpus: GPUs
    """GPUs that the run requests, without spares."""
    gpus_per_pod: GPUs
    """GPUs of one pod."""
    group_gpus: GPUs = field(name="groupGPUs")
    """GPUs of one group."""
    allow_cross_group_spread: bool = True
    """Whether groups may lie in several domains."""
    within: WithinName | None = None
    """Level of the one area that the whole run stays in, spares included."""
    balanced: bool = False
    """Whether every domain that is used has equally many groups."""
    per_area: AreaRules = field(default_factory=list)
    """Rules for each area of a level, spec.apart of the run included."""
    spares: Count = 0
    """Spare pods for each group."""
    malleability: RunMalleability | None = None
    scopes: list[PlanScope] = field(default_factory=list)
    """Scopes of the run with their maximum of GPUs."""


class PlanLevel(Struct, frozen=True, rename="camel"):
    """The fragmentation of one level of the topology: its place with the most free GPUs, and the most fragmented."""

    level: Annotated[str, Meta(max_length=63)]
    """Level: region, cluster, block or domain."""
    places: Count
    """Number of places of this level with nodes that the run may use."""
    most_free_gpus: Count = field(name="mostFreeGPUs")
    """Free GPUs of the place with the most."""
    most_unusable_gpus: float = field(name="mostUnusableGPUs")
    """Free GPUs that the expected mix of groups cannot use, of the place with the most."""
    most_unusable: str = ""
    """Place with the most such GPUs, as region/cluster/block/domain; empty if no place has any."""


class PlanFragmentation(Struct, frozen=True, rename="camel"):
    """Fragmentation after the plan: GPUs that the expected mix of groups cannot use, and the largest group."""

    expected_unusable_gpus: float = field(name="expectedUnusableGPUs")
    """Free GPUs that the expected mix of groups cannot use."""
    largest_group: Count
    """GPUs of the largest group that would still fit into one domain."""
    free_gpus: Count = field(default=0, name="freeGPUs")
    """Free GPUs of the nodes that the run may use."""
    levels: Annotated[list[PlanLevel], Meta(max_length=8)] = field(default_factory=list)
    """Fragmentation by level, the widest first."""


class PlanMetrics(Struct, frozen=True, rename="camel"):
    """Metrics of the plan, and a lower bound for the metric that its policy compares first."""

    domains: Count
    """Number of fabric domains that the groups lie in."""
    lower_bound: Count
    """Lower bound for the metric that the policy compares first; no plan is below it."""
    gap: Count
    """Difference between the plan and lowerBound; 0 proves that no plan is better."""
    stranded_gpus: Count = field(name="strandedGPUs")
    """GPUs that stay free in the domains that the groups lie in."""
    blocks: Count
    """Number of blocks that the groups lie in."""
    pristine_domains: Count
    """Number of domains of the plan in which no GPU was in use before."""
    spares_elsewhere: Count
    """Number of groups with a spare in another domain."""
    fragmentation: PlanFragmentation | None = None


class PlanSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The plan. A plan that the command line computes offline has no `run` and lacks the fields below it.

    The GPUs of the plan are in use until the pods of the run use them or `expiresAt` passes.
    """

    hash: Sha256
    """SHA-256 of the request, the groups and inventoryVersion: equal plans have equal hashes."""
    inventory_version: Sha256
    """SHA-256 of the nodes and free GPUs that the planner used."""
    policy: PolicyName
    """Policy of the plan, which selects the metric that the planner minimizes first."""
    flavor: str
    """Model of the GPUs, as a label of their nodes names it."""
    gpus: GPUs
    """GPUs of all groups, without spares; less than the request if a malleable run was reduced."""
    request: PlanRequest
    groups: Annotated[list[PlannedGroup], Meta(max_length=100_000)]
    """Nodes of each group, by index."""
    metrics: PlanMetrics
    run: str = ""
    """Name of the Run in the same namespace."""
    run_generation: Count = 0
    """metadata.generation of the Run at the time of planning."""
    number: Count = 0
    """Number of the plan among the plans of its run; the highest is the newest."""
    supersedes: str = ""
    """Name of the plan of this run that this plan supersedes."""
    reason: Annotated[str, Meta(max_length=1024)] = ""
    """Reason why this plan supersedes that plan."""
    expires_at: DateTime | None = None
    """When the controller releases GPUs of the plan that no pod of the run uses.

    A plan expires with the plan that it supersedes, if no pod of the run has had GPUs of that plan's time.
    """
    labels: Labels = field(default_factory=dict)
    """Labels of the run's spec at the time of planning, for the component that binds the plan."""


STARTED = "Started"
"""The condition of a plan during whose time a pod of its run has had GPUs."""


class PlanStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Observed state of the plan; only the controller writes it."""

    observed_generation: ObservedGeneration = 0
    conditions: Conditions = field(default_factory=list)
    """Live: the plan is the newest of its run and reserves its GPUs. Started: a pod of the run has had GPUs."""


class PlacementPlan(Struct, frozen=True, rename="camel", tag_field="kind", tag="PlacementPlan"):
    """The nodes for the groups of a run."""

    metadata: ObjectMeta
    spec: PlanSpec
    status: PlanStatus = field(default_factory=PlanStatus)
    api_version: str = API_VERSION


PLAN_RULES = ({"rule": "self.spec == oldSelf.spec", "message": "a plan is written once: it is superseded, not edited"},)
