"""PlacementPlan: where every group of a run goes. Written once; superseded, never edited."""

from typing import Annotated

from msgspec import Meta, Struct, field

from gkm.api.caches import DateTime
from gkm.api.meta import API_VERSION, ObjectMeta
from gkm.api.runs import GPUs, NoGPUs, PolicyName, RunMalleability

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


class SpareShare(Struct, frozen=True):
    """GPUs on each of some nodes of one domain that stand ready; `distance` is what they share with their group."""

    node: Nodes
    gpus: GPUs
    domain: str
    distance: str


class PlannedGroup(Struct, frozen=True, omit_defaults=True):
    """A group: all of it in one domain, and in one scope where the run has any.

    With `count` so many groups that follow each other and are alike, each with `gpus`: of every list of nodes the first
    takes the first names, and each as many.
    """

    index: Count
    gpus: GPUs
    region: str
    cluster: str
    block: str
    domain: str
    nodes: list[NodeShare]
    count: Number = 1
    scope: str = ""
    spares: list[SpareShare] = field(default_factory=list)


class PlanScope(Struct, frozen=True, rename={"max_gpus": "maxGPUs"}):
    """A ceiling, as the run had it."""

    name: str
    max_gpus: NoGPUs


_REQUEST_NAMES = {
    "gpus_per_pod": "gpusPerPod",
    "group_gpus": "groupGPUs",
    "allow_cross_group_spread": "allowCrossGroupSpread",
}


class PlanRequest(Struct, frozen=True, rename=_REQUEST_NAMES, omit_defaults=True):
    """What was planned: the run's sizes with every default filled in. The hash is over these."""

    gpus: GPUs
    gpus_per_pod: GPUs
    group_gpus: GPUs
    allow_cross_group_spread: bool = True
    spares: Count = 0
    malleability: RunMalleability | None = None
    scopes: list[PlanScope] = field(default_factory=list)


class PlanFragmentation(
    Struct,
    frozen=True,
    rename={"expected_unusable_gpus": "expectedUnusableGPUs", "largest_group": "largestGroup"},
):
    """What the plan leaves behind: GPUs that the expected mix of groups could not use, and the largest group."""

    expected_unusable_gpus: float
    largest_group: Count


_METRIC_NAMES = {
    "lower_bound": "lowerBound",
    "stranded_gpus": "strandedGPUs",
    "pristine_domains": "pristineDomains",
    "spares_elsewhere": "sparesElsewhere",
}


class PlanMetrics(Struct, frozen=True, rename=_METRIC_NAMES):
    """What the plan costs, and how good any plan can be at best in what its policy compares first."""

    domains: Count
    lower_bound: Count
    gap: Count
    stranded_gpus: Count
    blocks: Count
    pristine_domains: Count
    spares_elsewhere: Count
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
    inventory_version: Sha256
    policy: PolicyName
    flavor: str
    gpus: GPUs
    request: PlanRequest
    groups: Annotated[list[PlannedGroup], Meta(max_length=100_000)]
    metrics: PlanMetrics
    run: str = ""
    run_generation: Count = 0
    number: Count = 0
    supersedes: Annotated[str, Meta(description="The plan of this run that this one takes the place of.")] = ""
    reason: Annotated[str, Meta(max_length=1024, description="Why it took that one's place.")] = ""
    expires_at: DateTime | None = None


class PlacementPlan(Struct, frozen=True, rename={"api_version": "apiVersion"}, tag_field="kind", tag="PlacementPlan"):
    """Where the groups of a run go."""

    metadata: ObjectMeta
    spec: PlanSpec
    api_version: str = API_VERSION


PLAN_RULES = ({"rule": "self.spec == oldSelf.spec", "message": "a plan is written once: it is superseded, not edited"},)
