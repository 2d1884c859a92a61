"""Runs, plans and pods as they are watched: what is decided by, and nothing else of them."""

import hashlib
from typing import NamedTuple

import msgspec
from gkm.api.meta import API_VERSION, GROUP
from gkm.api.plans import PlanSpec, PlanStatus
from gkm.api.runs import RUN_LABEL, RunSpec, RunStatus
from gkm.kube.api import ListSelector
from gkm.kube.resources import Resource
from gkm.topology import nodes, pods
from msgspec import Raw, Struct, field, structs

ASKED = f"{GROUP}/asked"
"""On a plan: the sha256 of what its Run asked for."""
AGAIN = f"{GROUP}/plan-again"
"""On a Run: anything new asks for a new plan. On a plan: what stood on the Run when it was made."""

MAX_AGAIN = 63
"""Characters of the annotation that are kept as they are."""

_NOTHING = Raw(b"{}")


class RunKey(NamedTuple):
    """Which Run."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return it as people read it."""
        return f"{self.namespace}/{self.name}"


class Owner(Struct, frozen=True, gc=False):
    """Whose garbage an object becomes."""

    uid: str


class WatchedMetadata(Struct, frozen=True, rename="camel"):
    """Which object. Of the annotations only ours are kept, and none as large as the API server lets it be (256 KiB)."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    annotations: dict[str, str] | None = None
    owner_references: tuple[Owner, ...] | None = None
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None

    def __post_init__(self) -> None:
        said = self.annotations or {}
        kept = {ASKED: said[ASKED]} if ASKED in said else {}
        if AGAIN in said:
            kept[AGAIN] = _short(said[AGAIN])
        structs.force_setattr(self, "annotations", kept)

    def annotation(self, key: str) -> str:
        """Return one of our annotations, "" where there is none."""
        return (self.annotations or {}).get(key, "")


def _short(text: str) -> str:
    """Return a text, or what stands for a long one: its sha256."""
    return text if len(text) <= MAX_AGAIN else f"sha256-{hashlib.sha256(text.encode()).hexdigest()[:48]}"


class WatchedRun(Struct, frozen=True):
    """A Run."""

    metadata: WatchedMetadata
    spec: RunSpec
    status: RunStatus = field(default_factory=RunStatus)

    @property
    def key(self) -> RunKey:
        """Return which Run it is."""
        return RunKey(self.metadata.namespace, self.metadata.name)


class WatchedPlan(Struct, frozen=True):
    """A PlacementPlan."""

    metadata: WatchedMetadata
    spec: PlanSpec
    status: PlanStatus = field(default_factory=PlanStatus)

    def decides_as(self, other: "WatchedPlan") -> bool:
        """Return whether nothing is decided otherwise by another version of this object: only its status differs."""
        plain = structs.replace(other.metadata, resource_version=self.metadata.resource_version)
        return (plain, other.spec) == (self.metadata, self.spec)


class PodMetadata(Struct, frozen=True, gc=False):
    """Which pod, and the run that it says it is of ("" for none)."""

    name: str
    namespace: str = ""
    labels: dict[str, str] | None = None
    run: str = ""

    def __post_init__(self) -> None:
        structs.force_setattr(self, "run", (self.labels or {}).get(RUN_LABEL, ""))
        structs.force_setattr(self, "labels", None)


class WatchedPod(Struct, frozen=True, gc=False):
    """A pod as what it takes: GPUs of a node, or nobody knows how many of it (`fault` says why).

    Of a pod that waits or is over, `node` is "". There are 100,000 of them: nothing else is kept.
    """

    metadata: PodMetadata
    spec: Raw = _NOTHING
    status: pods.KubePodStatus = field(default_factory=pods.KubePodStatus)
    node: str = ""
    gpus: int = 0
    fault: str = ""

    def __post_init__(self) -> None:
        node, gpus, fault = _pod_usage(self.spec, self.status)
        for name, value in (("node", node), ("gpus", gpus), ("fault", fault), ("spec", _NOTHING)):
            structs.force_setattr(self, name, value)
        structs.force_setattr(self, "status", _NO_STATUS)


class _PodSpec(Struct, rename="camel"):
    node_name: str = ""


_NO_STATUS = pods.KubePodStatus()


def _pod_usage(spec: Raw, status: pods.KubePodStatus) -> tuple[str, int, str]:
    """Return the node of a pod, the GPUs that it takes there, and why that is not known."""
    try:
        pod = pods.Pod(spec=msgspec.json.decode(spec, type=pods.KubePodSpec), status=status)
        return (pod.spec.node_name, pods.requested_gpus(pod), "") if pods.occupies_node(pod) else ("", 0, "")
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        # A pod of more containers than are read is no reason to know nothing of all others.
        over = not pods.occupies_node(pods.Pod(spec=pods.KubePodSpec(node_name="any"), status=status))
        node = "" if over else msgspec.json.decode(spec, type=_PodSpec).node_name
        return node, 0, ascii(str(error)[:160])[1:-1] if node else ""


RUNS = Resource(API_VERSION, "Run", "runs", namespaced=True, type=WatchedRun)
PLANS = Resource(API_VERSION, "PlacementPlan", "placementplans", namespaced=True, type=WatchedPlan)
NODES = Resource("v1", "Node", "nodes", namespaced=False, type=nodes.Node)
PODS = Resource("v1", "Pod", "pods", namespaced=True, type=WatchedPod)
PLACED_PODS = ListSelector(fields="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed")
"""Pods that take something of a node; one that ends is told as deleted."""
