"""PlacementPlan: where every group of a run goes. Written once; superseded, never edited."""

from typing import Annotated

from msgspec import Meta, Struct, field

from gkm.api.caches import DateTime
from gkm.api.meta import API_VERSION, Conditions, ObjectMeta
from gkm.api.runs import GPUs, GPUsOrZero, Labels, PolicyName, RunMalleability

_INT32 = {"format": "int32"}
Count = Annotated[int, Meta(ge=0, extra_json_schema=_INT32)]
Number = Annotated[int, Meta(ge=1, extra_json_schema=_INT32)]
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
    """GPUs that a group takes of each of some nodes."""

    name: Nodes
    gpus: GPUs
    """GPUs that the group takes of each of these nodes."""


class SpareShare(Struct, frozen=True):
    """GPUs on each of some nodes of one domain that stand ready; `distance` is what they share with their group."""

    node: Nodes
    gpus: GPUs
    """GPUs that stand ready on each of these nodes."""
    domain: str
    """Fabric domain of these nodes."""
    distance: str
    """Smallest part of the topology that these nodes share with the group."""


class PlannedGroup(Struct, frozen=True, omit_defaults=True):
    """A group: all of it in one domain, and in one scope where the run has any.

    With `count` so many groups that follow each other and are alike, each with `gpus`: of every list of nodes the first
    takes the first names, and each as many.
    """

    index: Count
    """Number of the group, from 0; of several groups that are alike, of the first."""
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
    """Nodes of the group, with the GPUs that it takes of each."""
    count: Number = 1
    """So many groups follow each other and are alike."""
    scope: str = ""
    """Scope of the run that pays for the group; empty where the run has none."""
    spares: list[SpareShare] = field(default_factory=list)
    """Nodes with GPUs that stand ready for the group."""


class PlanScope(Struct, frozen=True, rename={"max_gpus": "maxGPUs"}):
    """A ceiling, as the run had it."""

    name: str
    """Name of the scope in the run."""
    max_gpus: GPUsOrZero
    """GPUs that the scope gives at most, spares included."""


_REQUEST_NAMES = {
    "gpus_per_pod": "gpusPerPod",
    "group_gpus": "groupGPUs",
    "allow_cross_group_spread": "allowCrossGroupSpread",
}


class PlanRequest(Struct, frozen=True, rename=_REQUEST_NAMES, omit_defaults=True):
    """What was planned: the run's sizes with every default filled in. The hash is over these."""

    gpus: GPUs
    """GPUs that the run asks for, without spares."""
    gpus_per_pod: GPUs
    """GPUs of one pod."""
    group_gpus: GPUs
    """GPUs of one group."""
    allow_cross_group_spread: bool = True
    """Whether groups may lie in several domains."""
    spares: Count = 0
    """Pods for each group that stand ready."""
    malleability: RunMalleability | None = None
    scopes: list[PlanScope] = field(default_factory=list)
    """Ceilings of the run by scope."""


class PlanFragmentation(
    Struct,
    frozen=True,
    rename={"expected_unusable_gpus": "expectedUnusableGPUs", "largest_group": "largestGroup"},
):
    """What the plan leaves behind: GPUs that the expected mix of groups could not use, and the largest group."""

    expected_unusable_gpus: float
    """Free GPUs that the expected mix of groups could not use."""
    largest_group: Count
    """GPUs of the largest group that would still fit into one domain."""


_METRIC_NAMES = {
    "lower_bound": "lowerBound",
    "stranded_gpus": "strandedGPUs",
    "pristine_domains": "pristineDomains",
    "spares_elsewhere": "sparesElsewhere",
}


class PlanMetrics(Struct, frozen=True, rename=_METRIC_NAMES):
    """What the plan costs, and how good any plan can be at best in what its policy compares first."""

    domains: Count
    """Fabric domains that the groups lie in."""
    lower_bound: Count
    """No plan has a lower value of what the policy compares first."""
    gap: Count
    """How far the plan is above lowerBound; 0 is the proof that no plan is better."""
    stranded_gpus: Count
    """GPUs that stay free in the domains that the groups lie in."""
    blocks: Count
    """Blocks that the groups lie in."""
    pristine_domains: Count
    """Domains of the plan in which no GPU was used before."""
    spares_elsewhere: Count
    """Groups with a spare in another domain."""
    fragmentation: PlanFragmentation | None = None


_SPEC_NAMES = {
    "run_generation": "runGeneration",
    "inventory_version": "inventoryVersion",
    "expires_at": "expiresAt",
}


class PlanSpec(Struct, frozen=True, rename=_SPEC_NAMES, omit_defaults=True):
    """The plan. Of a run's plans that with the highest number is the newest; `run` and all below it are absent offline.

    GPUs count as used until the run's pods run or `expiresAt` has passed, whichever comes first.
    """

    hash: Sha256
    """SHA-256 of the request, the groups and inventoryVersion: equal plans have equal hashes."""
    inventory_version: Sha256
    """SHA-256 of the nodes and their free GPUs that the plan was made from."""
    policy: PolicyName
    """What was compared first among all plans."""
    flavor: str
    """Model of the GPUs, as a label of their nodes names it."""
    gpus: GPUs
    """GPUs of all groups, without spares; less than the request where the run may be smaller."""
    request: PlanRequest
    groups: Annotated[list[PlannedGroup], Meta(max_length=100_000)]
    """Where each group goes, by index."""
    metrics: PlanMetrics
    run: str = ""
    """Name of the Run in the same namespace."""
    run_generation: Count = 0
    """metadata.generation of the Run that the plan was made for."""
    number: Count = 0
    """Number of the plan among those of its run; the highest is the newest."""
    supersedes: Annotated[str, Meta(description="The plan of this run that this one takes the place of.")] = ""
    reason: Annotated[str, Meta(max_length=1024, description="Why it took that one's place.")] = ""
    expires_at: DateTime | None = None
    """When the GPUs of the plan are free again, unless pods of the run use them."""
    labels: Labels = field(default_factory=dict)
    """Labels of the run's spec as they were when the plan was made, for whoever binds it."""


class PlanStatus(Struct, frozen=True, rename={"observed_generation": "observedGeneration"}, omit_defaults=True):
    """What became of the plan; the controller is the only writer."""

    observed_generation: Annotated[int, Meta(ge=0)] = 0
    """metadata.generation that this status is about."""
    conditions: Conditions = field(default_factory=list)
    """Live: the plan is the newest of its run and holds its GPUs."""


class PlacementPlan(Struct, frozen=True, rename={"api_version": "apiVersion"}, tag_field="kind", tag="PlacementPlan"):
    """Where the groups of a run go."""

    metadata: ObjectMeta
    spec: PlanSpec
    status: PlanStatus = field(default_factory=PlanStatus)
    api_version: str = API_VERSION


PLAN_RULES = ({"rule": "self.spec == oldSelf.spec", "message": "a plan is written once: it is superseded, not edited"},)
