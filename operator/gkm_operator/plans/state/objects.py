"""Run, PlacementPlan and Pod as the controller watches them: only the fields that decide, to save memory."""

import hashlib
from functools import lru_cache
from typing import NamedTuple

import msgspec
from gkm.api.meta import API_VERSION, GROUP
from gkm.api.plans import PlanSpec, PlanStatus
from gkm.api.runs import RUN_LABEL, RunSpec, RunStatus
from gkm.kube.api import ListSelector
from gkm.kube.memory import MAX_HELD_BYTES
from gkm.kube.resources import Resource
from gkm.topology import pods
from msgspec import Raw, Struct, field, structs

REQUEST_ANNOTATION = f"{GROUP}/asked"
"""Annotation of a plan: the sha256 of the request of its Run."""
REPLAN_ANNOTATION = f"{GROUP}/plan-again"
"""Annotation of a Run: a new value requests a new plan. A plan carries the value of its Run at that time."""

MAX_REQUEST, MAX_ANNOTATION = 64, 63
"""The longest annotations that are stored unhashed, in characters: a sha256 in hex, and a user's."""

_NOTHING = Raw(b"{}")


class RunKey(NamedTuple):
    """The namespace and name of a Run."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"


class OwnerReference(Struct, frozen=True, gc=False):
    """An owner reference."""

    uid: str


_MAX_OWNERS, _MAX_UID = 4, 64


class WatchedMetadata(Struct, frozen=True, rename="camel"):
    """Metadata with the annotations of GKM only, hashed if they are long: the API server allows 256 KiB."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None

    def __post_init__(self) -> None:
        given = self.annotations or {}
        annotations = {
            key: _hashed(given[key], longest)
            for key, longest in ((REQUEST_ANNOTATION, MAX_REQUEST), (REPLAN_ANNOTATION, MAX_ANNOTATION))
            if key in given
        }
        structs.force_setattr(self, "annotations", annotations)
        # An object of ours has one owner. A longer uid is of no object.
        owners = tuple(owner for owner in self.owner_references or () if len(owner.uid) <= _MAX_UID)
        structs.force_setattr(self, "owner_references", owners[:_MAX_OWNERS] or None)

    def annotation(self, key: str) -> str:
        """Return an annotation of GKM, "" without it."""
        return (self.annotations or {}).get(key, "")


def _hashed(text: str, longest: int) -> str:
    """Return a text; a longer one as its hash."""
    return text if len(text) <= longest else f"sha256-{hashlib.sha256(text.encode()).hexdigest()[:48]}"


class WatchedRun(Struct, frozen=True):
    """A Run."""

    metadata: WatchedMetadata
    given: RunSpec | None = field(name="spec")
    """None once it is decoded: `text` has it. A larger one stays, so that the refusal names its field."""
    status: RunStatus = field(default_factory=RunStatus)
    text: bytes = b""

    def __post_init__(self) -> None:
        if self.given is not None:
            structs.force_setattr(self, "text", msgspec.json.encode(self.given))
        if len(self.text) <= MAX_HELD_BYTES:
            structs.force_setattr(self, "given", None)

    @property
    def spec(self) -> RunSpec:
        """Return the spec, decoded anew: a run with many scopes takes a sixth of the memory as text."""
        return msgspec.json.decode(self.text, type=RunSpec)

    @property
    def key(self) -> RunKey:
        """Return namespace and name."""
        return RunKey(self.metadata.namespace, self.metadata.name)

    @property
    def request_hash(self) -> str:
        """Return the sha256, in hex, of the fields that decide a plan: all but priority and labels."""
        relevant = structs.replace(self.spec, priority=0, labels={})
        return hashlib.sha256(msgspec.json.encode(relevant, order="sorted")).hexdigest()

    @property
    def replan_annotation(self) -> str:
        """Return the annotation that requests a new plan, "" without it; a long one is hashed."""
        return self.metadata.annotation(REPLAN_ANNOTATION)


class WatchedPlan(Struct, frozen=True):
    """A PlacementPlan."""

    metadata: WatchedMetadata
    spec: PlanSpec
    status: PlanStatus = field(default_factory=PlanStatus)

    def is_equal_but_status(self, other: "WatchedPlan") -> bool:
        """Return whether another version of this object differs in status and resourceVersion only."""
        metadata = structs.replace(other.metadata, resource_version=self.metadata.resource_version)
        return (metadata, other.spec) == (self.metadata, self.spec)


class PodMetadata(Struct, frozen=True, gc=False, rename="camel"):
    """The name of a pod, the run that its label names ("" without one), and whether it is being deleted."""

    name: str
    namespace: str = ""
    labels: dict[str, str] | None = None
    run: str = ""
    deletion_timestamp: str | None = None
    terminating: bool = False

    def __post_init__(self) -> None:
        structs.force_setattr(self, "run", (self.labels or {}).get(RUN_LABEL, ""))
        structs.force_setattr(self, "terminating", self.deletion_timestamp is not None)
        for name in ("labels", "deletion_timestamp"):
            structs.force_setattr(self, name, None)


class WatchedPod(Struct, frozen=True, gc=False):
    """The GPUs that a pod uses on its node, and what it requests besides; with a `fault`, both are unknown.

    `node` is "" for a pod that waits or has ended. A cluster has 100,000 pods, so no other field is stored.
    """

    metadata: PodMetadata
    spec: Raw = _NOTHING
    status: pods.KubePodStatus = field(default_factory=pods.KubePodStatus)
    node: str = ""
    gpus: int = 0
    fault: str = ""
    load: pods.NodeLoad = pods.NodeLoad()

    def __post_init__(self) -> None:
        node, gpus, load, fault = _pod_usage(self.spec, self.status)
        found = (("node", node), ("gpus", gpus), ("load", _shared(load)), ("fault", fault), ("spec", _NOTHING))
        for name, value in found:
            structs.force_setattr(self, name, value)
        structs.force_setattr(self, "status", _NO_STATUS)


class _PodSpec(Struct, rename="camel"):
    node_name: str = ""


_NO_STATUS = pods.KubePodStatus()


@lru_cache(maxsize=1 << 12)
def _shared(load: pods.NodeLoad) -> pods.NodeLoad:
    """Return the first equal load: the pods of one template have the same."""
    return load


def _pod_usage(spec: Raw, status: pods.KubePodStatus) -> tuple[str, int, pods.NodeLoad, str]:
    """Return the node of a pod, the GPUs that it uses there, its other requests, and why these are unknown."""
    none = pods.NodeLoad()
    try:
        pod = pods.Pod(spec=msgspec.json.decode(spec, type=pods.KubePodSpec), status=status)
        if not pods.occupies_node(pod):
            return "", 0, none, ""
        return pod.spec.node_name, pods.requested_gpus(pod), pods.requested_load(pod), ""
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        # A pod with too many containers must not hide all others.
        ended = not pods.occupies_node(pods.Pod(spec=pods.KubePodSpec(node_name="any"), status=status))
        node = "" if ended else msgspec.json.decode(spec, type=_PodSpec).node_name
        return node, 0, none, ascii(str(error)[:160])[1:-1] if node else ""


RUNS = Resource(API_VERSION, "Run", "runs", namespaced=True, type=WatchedRun)
PLANS = Resource(
    API_VERSION,
    "PlacementPlan",
    "placementplans",
    namespaced=True,
    type=WatchedPlan,
    unbounded="only the controllers write it, and it names nodes of the cluster",
)
PODS = Resource("v1", "Pod", "pods", namespaced=True, type=WatchedPod)
PLACED_PODS = ListSelector(fields="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed")
"""Pods that use a node; the watch reports a pod that ends as deleted."""
