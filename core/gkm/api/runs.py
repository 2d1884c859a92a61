"""Run: a request for a number of GPUs in groups, each in one fabric domain. GKM plans a run; it never binds pods."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from gkm.api.meta import API_VERSION, GROUP, Conditions, Count, HasConditions, ObjectMeta, ObservedGeneration

MAX_GPUS = 1_000_000
MAX_SPARES = 1_024
MAX_PRIORITY = 1_000_000_000
"""The same as for pods: Kubernetes reserves higher values for system priority classes."""
MAX_NAME = 63
"""Characters in the name of a run: it is the value of a label of its pods, and a part of the names of its plans."""
MAX_FIXES = 8

PolicyName = Literal["fewest-domains", "fewest-blocks", "least-waste"]
WithinName = Literal["domain", "block", "cluster", "region"]
AreaName = Literal["domain", "rack", "block", "cluster", "region"]
ApartName = Literal["rack", "block"]
GPUs = Annotated[int, Meta(ge=1, le=MAX_GPUS, extra_json_schema={"format": "int32"})]
GPUsOrZero = Annotated[int, Meta(ge=0, le=MAX_GPUS, extra_json_schema={"format": "int32"})]
Flavor = Annotated[str, Meta(min_length=1, max_length=63, pattern="^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$")]
Name = Annotated[str, Meta(min_length=1, max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
RUN_LABEL = f"{GROUP}/run"
"""Label of a pod: the name of its Run, in the same namespace."""
GATE = f"{GROUP}/placement"
"""Scheduling gate of a pod that waits for the plan of its Run."""
# Kubernetes, "Labels and Selectors": an optional DNS subdomain and a slash, then a name; values may be empty.
LABEL_KEY = "([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
LABEL_VALUE = "([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_KEY_RULE = {
    "rule": f"self.all(key, key.matches('^{LABEL_KEY}$') && self[key].matches('^{LABEL_VALUE}$'))",
    "message": "these are no labels: a key is at most 63 letters, digits, '-', '_' and '.' behind an optional "
    "DNS name and a slash; so is a value",
}
Quantity = Annotated[
    int | str,
    Meta(
        extra_json_schema={
            "x-kubernetes-int-or-string": True,
            "maxLength": 32,
            "minimum": 0,
            "pattern": "^[0-9]{1,18}([.][0-9]{1,9})?([mkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$",
        }
    ),
]
"""A quantity of Kubernetes, as 64, "500m" or 512Gi."""
_Text = Annotated[str, Meta(max_length=63)]
Labels = Annotated[
    dict[str, _Text],
    Meta(max_length=32, extra_json_schema={"x-kubernetes-validations": [_KEY_RULE]}),
]


class Toleration(Struct, frozen=True, omit_defaults=True):
    """A toleration of the run's pods, as in the spec of a pod."""

    key: Annotated[str, Meta(max_length=317)] = ""
    """Key of the taint; empty with the operator Exists for every taint."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """Equal compares the value of the taint, Exists does not."""
    value: _Text = ""
    """Value of the taint."""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    """Effect of the taint; empty for every effect."""


class RunSelector(Struct, frozen=True, omit_defaults=True):
    """A selector of nodes by region, cluster and labels; an empty field selects every node."""

    region: Annotated[str, Meta(max_length=63)] = ""
    """Region of the nodes; empty for every region."""
    cluster: Annotated[str, Meta(max_length=63)] = ""
    """Cluster of the nodes; empty for every cluster."""
    labels: Labels = field(default_factory=dict)
    """Labels that a node must have."""


class RunScope(Struct, frozen=True, omit_defaults=True):
    """A part of the cluster with a maximum of GPUs, spares included; every group is in one scope."""

    name: Name
    """Name of the scope, unique in the run."""
    max_gpus: GPUsOrZero = field(name="maxGPUs")
    """Maximum of GPUs in the scope, spares included."""
    selector: RunSelector = field(default_factory=RunSelector)


class RunMalleability(Struct, frozen=True):
    """Permission to reduce a run by multiples of `stepGPUs`, down to `minGPUs`."""

    step_gpus: GPUs = field(name="stepGPUs")
    """Step, in GPUs, by which the planner may reduce the run."""
    min_gpus: GPUs = field(name="minGPUs")
    """Minimum of GPUs of the run."""


class RunAreaRule(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A rule for each area of a level, such as each rack; at least one of its numbers is set."""

    level: AreaName
    """Level of the areas; a domain in no single known rack is not used where racks have a rule."""
    max_groups: GPUs | None = None
    """Maximum of groups in one area."""
    max_nodes: GPUs | None = None
    """Maximum of nodes that the run uses in one area, spares included."""
    groups_together: GPUs | None = None
    """So many groups, in the order of their numbers, lie in one area: a block, a cluster or a region."""


AreaRules = Annotated[
    list[RunAreaRule],
    Meta(
        max_length=5,
        extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["level"]},
    ),
]


class RunRequests(Struct, frozen=True, omit_defaults=True):
    """Requests of one pod of the run, as its containers and its overhead have them together."""

    cpu: Quantity | None = None
    """CPUs of one pod; without a value, one GPU's share of the node must be free."""
    memory: Quantity | None = None
    """Memory of one pod; without a value, one GPU's share of the node must be free."""


class RunSpec(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Desired state of a run."""

    flavor: Flavor
    """Model of the GPUs, as a label of their nodes names it."""
    gpus: GPUs
    """GPUs of the whole run, without spares."""
    gpus_per_pod: GPUs = 8
    """GPUs of one pod, all on one node; default: 8."""
    group_gpus: GPUs | None = field(default=None, name="groupGPUs")
    """GPUs of one group, all in one domain; default: gpusPerPod."""
    requests: RunRequests = field(default_factory=RunRequests)
    tolerations: Annotated[list[Toleration], Meta(max_length=32)] | None = None
    """Default: the taint nvidia.com/gpu."""
    allow_cross_group_spread: bool = True
    """Whether groups may lie in several domains."""
    within: WithinName | None = None
    """Level of the one area that the whole run stays in, spares included; domain: as allowCrossGroupSpread false."""
    balanced: bool = False
    """Whether every domain that is used has equally many groups."""
    apart: ApartName | None = None
    """Level of which each group lies in another area, as replicas of a service: as perArea with maxGroups 1."""
    per_area: AreaRules = field(default_factory=list)
    """Rules for each area of a level."""
    spares: Annotated[int, Meta(ge=0, le=MAX_SPARES, extra_json_schema={"format": "int32"})] = 0
    """Spare pods for each group."""
    malleability: RunMalleability | None = None
    selector: RunSelector = field(default_factory=RunSelector)
    scopes: Annotated[
        list[RunScope],
        Meta(
            max_length=16,
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = field(default_factory=list)
    """Parts of the cluster with a maximum of GPUs; every group is in one part."""
    policy: PolicyName | None = None
    """Metric that the planner minimizes first; default: packing.policy."""
    priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY, extra_json_schema={"format": "int32"})] = 0
    """Priority among pending runs; the planner handles the highest first."""
    labels: Labels = field(default_factory=dict)
    """Labels for the component that binds the plan; GKM copies them to the plan and ignores them."""
    on_no_plan: Literal["wait", "release"] = "wait"
    """What a gated pod does without a plan for packing.podGateWait: wait for one, or start without one."""


class RunFix(Struct, frozen=True):
    """A change that makes the run fit, which the planner has verified."""

    kind: Annotated[str, Meta(max_length=63)]
    """Kind of the change, as one word."""
    message: Annotated[str, Meta(max_length=1024)]
    """The change, as a sentence."""


class PlanReference(Struct, frozen=True):
    """A PlacementPlan of the same namespace."""

    name: str
    """Name of the PlacementPlan."""


class RunPods(Struct, frozen=True, omit_defaults=True):
    """Pods of a run by what spec.nodeName says; a pod that ended, or whose deletion began, is in none."""

    followed: Count = 0
    """Number of pods that run on their planned nodes."""
    waiting: Count = 0
    """Number of pods without a node."""
    diverged: Count = 0
    """Number of pods on a node, or bound to a node, where the plan has no place for them."""


class RunStatus(HasConditions, Struct, frozen=True, rename="camel", omit_defaults=True):
    """Observed state of a run; only the controller writes it."""

    observed_generation: ObservedGeneration = 0
    plan_ref: PlanReference | None = None
    """The newest plan of the run."""
    gpus: GPUsOrZero = 0
    """Planned GPUs; less than spec.gpus if a malleable run was reduced."""
    domains: Count = 0
    """Number of fabric domains that the groups of the plan lie in."""
    binding_level: _Text = ""
    """Constraint that prevents the run from fitting."""
    largest_feasible_groups: Count | None = None
    """Number of whole groups that fit."""
    fixes: Annotated[list[RunFix], Meta(max_length=MAX_FIXES)] = field(default_factory=list)
    """Verified changes that make the whole run fit."""
    pods: RunPods | None = None
    """Pods of the run, where packing.podGates is set."""
    conditions: Conditions = field(default_factory=list)
    """Planned: planRef names a plan that reserves GPUs for the whole request. Drift: pods hold GPUs outside of it.

    Followed: every pod runs where the plan says.
    """


class Run(Struct, frozen=True, rename="camel", tag_field="kind", tag="Run"):
    """A run of groups of GPUs that needs a placement plan."""

    metadata: ObjectMeta
    spec: RunSpec
    status: RunStatus = field(default_factory=RunStatus)
    api_version: str = API_VERSION


_POD = "(has(self.spec.gpusPerPod) ? self.spec.gpusPerPod : 8)"
_GROUP = f"(has(self.spec.groupGPUs) ? self.spec.groupGPUs : {_POD})"
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
    {
        "rule": "!has(self.spec.perArea) || self.spec.perArea.all(one, has(one.maxGroups) || has(one.maxNodes) || "
        "has(one.groupsTogether))",
        "message": "a rule of perArea has none of maxGroups, maxNodes and groupsTogether",
    },
    {
        "rule": f"!has(self.spec.perArea) || self.spec.perArea.all(one, !has(one.groupsTogether) || "
        f"(one.level in ['block', 'cluster', 'region'] && self.spec.gpus % (one.groupsTogether * {_GROUP}) == 0))",
        "message": "groupsTogether is for a block, a cluster or a region, and gpus divide into so many groups",
    },
    {
        # The order of the alphabet is the order of these levels.
        "rule": "!has(self.spec.perArea) || self.spec.perArea.all(one, !has(one.groupsTogether) || "
        "self.spec.perArea.all(outer, !has(outer.groupsTogether) || outer.level <= one.level || "
        "outer.groupsTogether % one.groupsTogether == 0))",
        "message": "groupsTogether of a level do not divide into groupsTogether of a smaller level",
    },
)
