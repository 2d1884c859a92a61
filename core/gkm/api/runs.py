"""Run: somebody wants so many GPUs, in groups that lie in one fabric domain each. Planned, never bound, by us."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from gkm.api.meta import API_VERSION, GROUP, Condition, ObjectMeta

MAX_GPUS = 1_000_000
MAX_SPARES = 1_024
MAX_PRIORITY = 1_000_000_000
"""As of pods: what is above is the system's (Kubernetes, PriorityClass)."""
MAX_NAME = 63
"""Characters of a run's name: its pods carry it as the value of a label, and its plans are called after it."""
MAX_FIXES = 8

PolicyName = Literal["fewest-domains", "fewest-blocks", "least-waste"]
GPUs = Annotated[int, Meta(ge=1, le=MAX_GPUS, extra_json_schema={"format": "int32"})]
GPUsOrZero = Annotated[int, Meta(ge=0, le=MAX_GPUS, extra_json_schema={"format": "int32"})]
Flavor = Annotated[str, Meta(min_length=1, max_length=63, pattern="^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$")]
Name = Annotated[str, Meta(min_length=1, max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
RUN_LABEL = f"{GROUP}/run"
"""On a pod: the name of the Run of its namespace that it belongs to."""
# Kubernetes, "Labels and Selectors": an optional DNS subdomain and a slash, then a name; values may be empty.
LABEL_KEY = "([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
LABEL_VALUE = "([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_KEY_RULE = {
    "rule": f"self.all(key, key.matches('^{LABEL_KEY}$') && self[key].matches('^{LABEL_VALUE}$'))",
    "message": "these are no labels: a key is at most 63 letters, digits, '-', '_' and '.' behind an optional "
    "DNS name and a slash; so is a value",
}
_Text = Annotated[str, Meta(max_length=63)]
Labels = Annotated[
    dict[str, _Text],
    Meta(max_length=32, extra_json_schema={"x-kubernetes-validations": [_KEY_RULE]}),
]


class Toleration(Struct, frozen=True, omit_defaults=True):
    """A taint that the run's pods put up with, as in the spec of a pod."""

    key: Annotated[str, Meta(max_length=317)] = ""
    """Key of the taint; empty with the operator Exists for every taint."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """Equal compares the value of the taint, Exists does not."""
    value: _Text = ""
    """Value of the taint."""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    """Effect of the taint; empty for every effect."""


class RunSelector(Struct, frozen=True, omit_defaults=True):
    """Which nodes: in this region, in this cluster, with these labels. What is absent selects every node."""

    region: Annotated[str, Meta(max_length=63)] = ""
    """Region of the nodes; empty for every region."""
    cluster: Annotated[str, Meta(max_length=63)] = ""
    """Cluster of the nodes; empty for every cluster."""
    labels: Labels = field(default_factory=dict)
    """Labels that the nodes have."""


class RunScope(Struct, frozen=True, omit_defaults=True, rename={"max_gpus": "maxGPUs"}):
    """What pays: every group lies within one scope, and no scope gives more than its ceiling, spares included."""

    name: Name
    """Name of the scope, unique in the run."""
    max_gpus: GPUsOrZero
    """GPUs that the scope gives at most, spares included."""
    selector: RunSelector = field(default_factory=RunSelector)


class RunMalleability(Struct, frozen=True, rename={"step_gpus": "stepGPUs", "min_gpus": "minGPUs"}):
    """A run that may be smaller by multiples of `stepGPUs`, down to `minGPUs`."""

    step_gpus: GPUs
    """The run may be smaller by multiples of so many GPUs."""
    min_gpus: GPUs
    """The run is never smaller than this."""


_NAMES = {
    "gpus_per_pod": "gpusPerPod",
    "group_gpus": "groupGPUs",
    "allow_cross_group_spread": "allowCrossGroupSpread",
}


class RunSpec(Struct, frozen=True, omit_defaults=True, rename=_NAMES):
    """What is wanted."""

    flavor: Annotated[Flavor, Meta(description="The GPUs, as a label of their nodes names them.")]
    gpus: Annotated[GPUs, Meta(description="All of them together, without spares.")]
    gpus_per_pod: Annotated[GPUs, Meta(description="GPUs of one pod, all of one node; 8 without it.")] = 8
    group_gpus: (
        Annotated[GPUs, Meta(description="GPUs of one group, all of one domain; those of a pod without it.")] | None
    ) = None
    tolerations: (
        Annotated[list[Toleration], Meta(description="Default: the taint nvidia.com/gpu.", max_length=32)] | None
    ) = None
    allow_cross_group_spread: Annotated[bool, Meta(description="Whether groups may lie in several domains.")] = True
    spares: Annotated[
        int,
        Meta(ge=0, le=MAX_SPARES, description="Pods a group that stand ready.", extra_json_schema={"format": "int32"}),
    ] = 0
    malleability: RunMalleability | None = None
    selector: RunSelector = field(default_factory=RunSelector)
    scopes: Annotated[
        list[RunScope],
        Meta(
            max_length=16,
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = field(default_factory=list)
    """Ceilings by where nodes are; every group lies within one of them."""
    policy: (
        Annotated[PolicyName, Meta(description="What is compared first; default: the configuration's packing.policy.")]
        | None
    ) = None
    priority: Annotated[
        int,
        Meta(
            ge=-MAX_PRIORITY,
            le=MAX_PRIORITY,
            description="Of runs that wait, the highest is planned first.",
            extra_json_schema={"format": "int32"},
        ),
    ] = 0
    labels: Annotated[
        Labels, Meta(description="For whoever binds the plan, which repeats them; they decide nothing.")
    ] = field(default_factory=dict)


class RunFix(Struct, frozen=True):
    """A change that would make the run fit; it was planned, and does."""

    kind: Annotated[str, Meta(max_length=63)]
    """What is changed, as one word."""
    message: Annotated[str, Meta(max_length=1024)]
    """The change, as a sentence."""


class PlanReference(Struct, frozen=True):
    """A PlacementPlan of the same namespace."""

    name: str
    """Name of the PlacementPlan."""


class RunStatus(
    Struct,
    frozen=True,
    rename={
        "observed_generation": "observedGeneration",
        "plan_ref": "planRef",
        "binding_level": "bindingLevel",
        "largest_feasible_groups": "largestFeasibleGroups",
    },
    omit_defaults=True,
):
    """What came of it; the controller is the only writer."""

    observed_generation: Annotated[int, Meta(ge=0)] = 0
    """metadata.generation that this status is about."""
    plan_ref: PlanReference | None = None
    """The newest plan of the run."""
    gpus: Annotated[
        GPUsOrZero, Meta(description="What is planned: less than asked for where a run may be smaller.")
    ] = 0
    domains: Annotated[int, Meta(ge=0, extra_json_schema={"format": "int32"})] = 0
    """Fabric domains that the groups of the plan lie in."""
    binding_level: Annotated[str, Meta(description="What keeps the run from fitting.", max_length=63)] = ""
    largest_feasible_groups: (
        Annotated[int, Meta(ge=0, description="So many whole groups would fit.", extra_json_schema={"format": "int32"})]
        | None
    ) = None
    fixes: Annotated[list[RunFix], Meta(max_length=MAX_FIXES)] = field(default_factory=list)
    """Changes that were planned and would make the whole run fit."""
    conditions: Annotated[
        list[Condition],
        Meta(extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
    ] = field(default_factory=list)
    """Planned: planRef names a plan that holds GPUs for the whole request."""

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of a type."""
        return next((condition for condition in self.conditions if condition.type == kind), None)


class Run(Struct, frozen=True, rename={"api_version": "apiVersion"}, tag_field="kind", tag="Run"):
    """A run of groups of GPUs that wants a placement plan."""

    metadata: ObjectMeta
    spec: RunSpec
    status: RunStatus = field(default_factory=RunStatus)
    api_version: str = API_VERSION


_POD = "(has(self.spec.gpusPerPod) ? self.spec.gpusPerPod : 8)"
RUN_RULES = (
    {"rule": f"size(self.metadata.name) <= {MAX_NAME}", "message": f"the name is longer than {MAX_NAME} characters"},
    {"rule": f"self.spec.gpus % {_POD} == 0", "message": "gpus do not divide into pods of gpusPerPod (default 8)"},
    {
        "rule": f"!has(self.spec.groupGPUs) || self.spec.groupGPUs % {_POD} == 0",
        "message": "groupGPUs do not divide into pods of gpusPerPod (default 8)",
    },
    {
        "rule": "!has(self.spec.malleability) || self.spec.malleability.minGPUs <= self.spec.gpus",
        "message": "malleability.minGPUs is more than gpus",
    },
)
