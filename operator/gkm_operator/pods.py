"""The kind Pod, decoded in one form that all controllers share, and the facts that each controller derives from it.

A cluster has 100,000 pods. Each is reduced to the fields that decide when it is decoded, equal values of several pods
are stored once, and a pod has only its requests if no other field is needed. Pods that no reader wants are not stored
(gkm.kube.informers). Must never write to the API server.
"""

from collections.abc import Callable, Iterable
from copy import copy
from functools import lru_cache
from itertools import chain
from sys import intern
from typing import Annotated, Self, TypeVar

import msgspec
from gkm.api.installation import AGENT
from gkm.api.mnnvl_metadata import DOMAIN_LABEL, OBJECT_NAME, PART_OF, REPLICA_INDEX, Owner
from gkm.api.pod_caches import VOLUMES
from gkm.api.pod_specs import PodClaim, Quantities
from gkm.api.runs import GATE, RUN_LABEL
from gkm.api.task_groups import GROUP_LABEL
from gkm.kube.api import Key
from gkm.kube.memory import MAX_HELD_BYTES, held_bytes
from gkm.kube.resources import Resource
from gkm.topology import pods
from gkm.topology.nodes import Resources
from msgspec import Meta, Raw, Struct, structs

from gkm_operator.mnnvl.gpu_requests import is_positive

T = TypeVar("T")

_LABELS = (DOMAIN_LABEL, GROUP_LABEL, PART_OF, REPLICA_INDEX, RUN_LABEL)
"""The labels that are kept of a pod."""
HOSTNAME = "kubernetes.io/hostname"
_RANKS = (
    ("leaderworkerset.sigs.k8s.io/group-index", "leaderworkerset.sigs.k8s.io/worker-index"),
    ("jobset.sigs.k8s.io/job-global-index", "batch.kubernetes.io/job-completion-index"),
    ("batch.kubernetes.io/job-completion-index",),
    ("apps.kubernetes.io/pod-index",),
)
"""The labels that number pods in a workload, the most specific first; in a pair, the first numbers the pod's group."""
_MAX_DIGITS = 6
_MAX_OWNERS = 4
_MAX_FAULT = 160
_MAX_UNBOUND = 512
_SUCCEEDED = "Succeeded"
_TERMINAL_PHASES = (_SUCCEEDED, "Failed")
_ORDINARY = frozenset({"cpu", "memory", "ephemeral-storage"})
_NOTHING, _NONE = Raw(b"{}"), Raw(b"[]")


@lru_cache(maxsize=1 << 12)
def _first(value: T) -> T:
    return value


def _shared(value: T) -> T:
    """Return the first equal value: the replicas of one workload have equal owners, claims and requests."""
    return _first(value) if not value or held_bytes(value) <= MAX_HELD_BYTES else value


@lru_cache(maxsize=1 << 12)
def _labels(items: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return the first equal labels; they must not be changed."""
    return dict(items)


class PodMetadata(Struct, frozen=True, gc=False, rename="camel"):
    """The metadata of a pod that controllers read, with the names of MnnvlMetadata."""

    name: str
    namespace: str = ""
    uid: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    resource_version: str = ""
    """"" once the pod is decoded, as `rank` is ()."""
    labels: dict[str, str] | None = None
    owner_references: tuple[Owner, ...] | None = None
    is_agent: bool = False
    """Whether the pod has the label of GKM's agents; pods of other namespaces can have it too."""
    rank: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        found = self.labels or {}
        if found.get(RUN_LABEL):
            _set(self, rank=_rank(found))
        held = tuple((key, found[key]) for key in _LABELS if key in found)
        _set(
            self,
            namespace=intern(self.namespace),
            creation_timestamp=intern(self.creation_timestamp),
            labels=_labels(held) if held else None,
            owner_references=_owners(self.owner_references),
            is_agent=found.get(OBJECT_NAME) == AGENT,
        )

    def label(self, key: str) -> str:
        """Return the value of a label of the pod; "" if absent."""
        return (self.labels or {}).get(key, "")

    @property
    def run(self) -> str:
        """Return the name of the Run in the pod's label, "" if absent."""
        return self.label(RUN_LABEL)

    @property
    def group(self) -> Key:
        """Return namespace and name of the TaskGroup in the pod's label."""
        return self.namespace, self.label(GROUP_LABEL)

    @property
    def terminating(self) -> bool:
        """Return whether the pod is being deleted."""
        return self.deletion_timestamp is not None

    @property
    def controller(self) -> Owner | None:
        """Return the owner reference that has `controller: true`, None if absent."""
        return next((owner for owner in self.owner_references or () if owner.controller), None)


def _rank(labels: dict[str, str]) -> tuple[int, ...]:
    """Return the numbers of a pod in its workload, () without any."""
    for keys in _RANKS:
        found = [labels.get(key, "") for key in keys]
        if all(text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS for text in found):
            return tuple(map(int, found))
    return ()


def _owners(owners: tuple[Owner, ...] | None) -> tuple[Owner, ...] | None:
    """Return the owners that can exist, a few of them, and always the controller of the pod."""
    possible = [owner for owner in owners or () if owner.possible]
    possible.sort(key=lambda owner: not owner.controller)
    return _first(tuple(possible[:_MAX_OWNERS])) or None


class PodStatus(Struct, frozen=True, rename="camel", gc=False):
    """The phase of a pod, the time when its kubelet accepted it, and its conditions, not decoded yet."""

    phase: str = ""
    start_time: str = ""
    conditions: Raw = _NONE


class _Condition(Struct, frozen=True, gc=False):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _Requirements(Struct, frozen=True, gc=False):
    requests: Quantities | None = None
    limits: Quantities | None = None


class _Container(Struct, frozen=True, rename="camel", gc=False):
    resources: _Requirements | None = None
    restart_policy: str = ""


_Containers = Annotated[tuple[_Container, ...], Meta(max_length=4096)]


class _Gate(Struct, frozen=True, gc=False):
    name: str = ""


class _ImageSource(Struct, frozen=True, gc=False):
    reference: str = ""


class _Volume(Struct, frozen=True, gc=False):
    name: str = ""
    image: _ImageSource | None = None


class ReadSpec(Struct, frozen=True, rename="camel", gc=False):
    """The fields of a pod's spec that the controllers read; they derive the fields of WatchedPod from it."""

    node_name: str = ""
    containers: _Containers | None = None
    init_containers: _Containers | None = None
    overhead: Quantities | None = None
    resource_claims: Annotated[tuple[PodClaim, ...], Meta(max_length=4096)] | None = None
    scheduling_gates: Annotated[tuple[_Gate, ...], Meta(max_length=4096)] | None = None
    volumes: Annotated[tuple[_Volume, ...], Meta(max_length=4096)] | None = None
    node_selector: dict[str, str] | None = None


class _NodeOnly(Struct, rename="camel"):
    node_name: str = ""


class RunPod(Struct, frozen=True, gc=False):
    """The fields that decide where a pod of a Run starts, and in which order.

    `gated`: it has our gate. `blocked`: it has another gate, too. `hostname` is the label of the node that its
    nodeSelector names, "" if absent. `unbound` is the cause that a scheduler states for not binding it, "" if absent.
    """

    uid: str
    version: str
    created: str
    rank: tuple[int, ...]
    """The numbers of the pod in its workload, empty if it has none."""
    terminating: bool
    gated: bool = False
    blocked: bool = False
    hostname: str = ""
    unbound: str = ""


_NO_STATUS = PodStatus()


class WatchedPod(Struct, frozen=True, gc=False):
    """A pod as the controllers' shared watch holds it, reduced to the fields that they read.

    `node` is "" for a pod that waits or has ended, and `started` until its kubelet accepted it. `resources` are the
    names of what it requests besides CPUs and memory. With a `fault`, `gpus` and `load` are unknown. With `refused`,
    its claims, resources and owners are not known, because they take too much memory or cannot be read.
    """

    metadata: PodMetadata
    spec: Raw = _NOTHING
    status: PodStatus = _NO_STATUS
    node: str = ""
    phase: str = ""
    started: str = ""
    ready: bool = False
    """Whether an agent's pod is Ready; False for other pods."""
    claims: tuple[PodClaim, ...] = ()
    resources: tuple[str, ...] = ()
    gpus: int = 0
    load: pods.NodeLoad = pods.NodeLoad()
    fault: str = ""
    refused: str = ""
    image_volumes: tuple[str, ...] = ()
    """The image references of volumes that the webhook added to the pod."""
    of_run: RunPod | None = None
    """Set for a pod of a Run that has not ended and requests devices or has our gate, otherwise None."""

    def __post_init__(self) -> None:
        _set(self, phase=intern(self.status.phase), started=intern(self.status.start_time))
        try:
            spec = msgspec.json.decode(self.spec, type=ReadSpec)
        except (msgspec.DecodeError, RecursionError) as error:
            # A pod with too many containers must not hide all others.
            why = ascii(str(error)[:_MAX_FAULT])[1:-1]
            node = "" if self.ended else msgspec.json.decode(self.spec, type=_NodeOnly).node_name
            _set(self, node=intern(node), fault=why if node else "", refused=f"spec cannot be read: {why}")
        else:
            self._read(spec)
        ready = self.metadata.is_agent and not self.metadata.terminating and _is_ready(self.status.conditions)
        _set(self, ready=ready, spec=_NOTHING, status=_NO_STATUS)
        _set(self.metadata, resource_version="", rank=())
        if not self._is_read_further:
            _set(self, metadata=_only_name(self.metadata), started="")

    def outline(self, why: str) -> Self:
        """Return a reduced copy of the pod: with one owner, and if needed without claims, resources and most labels."""
        outlined = copy(self)  # not made anew from the spec, which decoding has emptied
        owner = self.metadata.controller
        _set(outlined, metadata=_with(self.metadata, owner_references=None if owner is None else (owner,)))
        if held_bytes(outlined) > MAX_HELD_BYTES:
            read = {key: self.metadata.label(key) for key in (GROUP_LABEL, RUN_LABEL) if self.metadata.label(key)}
            metadata = _with(self.metadata, owner_references=None, labels=read or None)
            _set(outlined, metadata=metadata, claims=(), resources=(), image_volumes=(), refused=why)
        return outlined

    @property
    def key(self) -> Key:
        """Return namespace and name of the pod."""
        return self.metadata.namespace, self.metadata.name

    @property
    def templates(self) -> frozenset[str]:
        """Return the names of the ResourceClaimTemplates that the pod references."""
        return claim_templates(self.claims)

    @property
    def template_keys(self) -> list[Key]:
        """Return namespace and name of the ResourceClaimTemplates that the pod references."""
        return [(self.metadata.namespace, template) for template in self.templates]

    @property
    def domain(self) -> str:
        """Return the name of the ComputeDomain in the pod's label, "" if absent."""
        return self.metadata.label(DOMAIN_LABEL)

    @property
    def running(self) -> bool:
        """Return whether a container of the pod has started, so that its claims are prepared."""
        return self.phase == "Running"

    @property
    def ended(self) -> bool:
        """Return whether all containers have ended for good; a terminating pod has not ended."""
        return self.phase in _TERMINAL_PHASES

    @property
    def succeeded(self) -> bool:
        """Return whether all containers have ended without an error."""
        return self.phase == _SUCCEEDED

    def _read(self, spec: ReadSpec) -> None:
        containers = (*(spec.init_containers or ()), *(spec.containers or ()))
        _set(self, claims=_shared(spec.resource_claims or ()), resources=_shared(tuple(sorted(_resources(containers)))))
        if self.metadata.run and not self.ended:
            found = _run_pod(self.metadata, spec, self.status.conditions)
            # A pod without GPUs, such as a launcher, has no place in a plan.
            _set(self, of_run=found if found.gated or self.resources or self.claims else None)
        if not spec.node_name or self.ended:
            return
        _set(self, node=intern(spec.node_name), image_volumes=_shared(_image_volumes(spec.volumes or ())))
        try:
            pod = pods.Pod(spec=_requests(spec))
            _set(self, gpus=pods.requested_gpus(pod), load=_first(pods.requested_load(pod)))
        except ValueError as error:
            _set(self, gpus=0, fault=ascii(str(error)[:_MAX_FAULT])[1:-1])

    @property
    def _is_read_further(self) -> bool:
        """Return whether more is read than its requests, and the run that they belong to."""
        meta = self.metadata
        return bool(self.claims or self.resources or self.refused or meta.is_agent or self.domain or meta.group[1])


def _run_pod(found: PodMetadata, spec: ReadSpec, conditions: Raw) -> RunPod:
    gates = [gate.name for gate in spec.scheduling_gates or ()]
    # A label has at most 63 characters: a longer one is of no node.
    hostname = intern((spec.node_selector or {}).get(HOSTNAME, "")[:64])
    meta = (found.uid, found.resource_version, found.creation_timestamp, found.rank, found.terminating)
    unbound = "" if spec.node_name else _unbound(conditions)
    return RunPod(*meta, GATE in gates, any(name != GATE for name in gates), hostname, unbound)


def _set(decoded: Struct, **values: object) -> None:
    for name, value in values.items():
        structs.force_setattr(decoded, name, value)


def _only_name(found: PodMetadata) -> PodMetadata:
    run = _labels(((RUN_LABEL, found.run),)) if found.run else None
    nothing = {"uid": "", "creation_timestamp": "", "deletion_timestamp": None, "owner_references": None}
    return _with(found, labels=run, **nothing)


def _with(found: PodMetadata, **values: object) -> PodMetadata:
    """Return metadata with some fields changed, which is as if it had been read so."""
    changed = copy(found)
    _set(changed, **values)
    return changed


def _read_conditions(conditions: Raw) -> tuple[_Condition, ...]:
    return msgspec.json.decode(conditions, type=tuple[_Condition, ...] | None) or ()


def _is_ready(conditions: Raw) -> bool:
    return any((each.type, each.status) == ("Ready", "True") for each in _read_conditions(conditions))


def _unbound(conditions: Raw) -> str:
    """Return the cause that a scheduler states for not binding a pod. A gated pod has another reason."""
    tried = ("PodScheduled", "False", "Unschedulable")
    found = (each for each in _read_conditions(conditions) if (each.type, each.status, each.reason) == tried)
    # Pods of one run mostly have the same cause.
    return intern(next((each.message or each.reason for each in found), "")[:_MAX_UNBOUND])


def _resources(containers: tuple[_Container, ...]) -> set[str]:
    named = (each.resources for each in containers if each.resources is not None)
    listed = (found.items() for each in named for found in (each.limits, each.requests) if found)
    return {name for name, quantity in chain.from_iterable(listed) if name not in _ORDINARY and is_positive(quantity)}


def _image_volumes(volumes: Iterable[_Volume]) -> tuple[str, ...]:
    ours = (volume.image for volume in volumes if volume.name in VOLUMES)
    return tuple(sorted({image.reference for image in ours if image is not None and image.reference}))


def _requests(spec: ReadSpec) -> pods.KubePodSpec:
    return pods.KubePodSpec(
        spec.node_name,
        tuple(map(_container, spec.containers or ())),
        tuple(map(_container, spec.init_containers or ())),
        _amounts(spec.overhead),
    )


def _container(found: _Container) -> pods.ListedContainer:
    if (given := found.resources) is None:
        return pods.ListedContainer(None, found.restart_policy)
    amounts = pods.ResourceRequirements(_amounts(given.requests), _amounts(given.limits))
    return pods.ListedContainer(amounts, found.restart_policy)


def _amounts(found: Quantities | None) -> Resources | None:
    if found is None:
        return None
    return Resources(found.get("nvidia.com/gpu"), found.get("cpu"), found.get("memory"))


def claim_templates(claims: Iterable[PodClaim]) -> frozenset[str]:
    """Return the names of the ResourceClaimTemplates that claims reference."""
    return frozenset(claim.resource_claim_template_name or "" for claim in claims) - {""}


def occupies_node(pod: WatchedPod) -> bool:
    """Return whether a pod takes up resources of a node: it has a node and has not ended."""
    return bool(pod.node)


def is_of_run(pod: WatchedPod) -> bool:
    """Return whether a pod of a Run has not ended, and gets a place in a plan."""
    return pod.of_run is not None


def is_task(pod: WatchedPod) -> bool:
    """Return whether a pod has a TaskGroup's label."""
    return bool(pod.metadata.group[1])


def is_agent(namespace: str) -> Callable[[WatchedPod], bool]:
    """Return a function that recognizes the pods of GKM's agents in this namespace."""
    return lambda pod: pod.metadata.is_agent and pod.metadata.namespace == namespace


PODS = Resource("v1", "Pod", "pods", namespaced=True, type=WatchedPod)


class Terminated(Struct, frozen=True, rename="camel", gc=False):
    """How a container ended; `message` is its termination message."""

    exit_code: int = 0
    started_at: str = ""
    finished_at: str = ""
    message: str = ""


class _ContainerState(Struct, frozen=True, gc=False):
    terminated: Terminated | None = None


class ContainerEnds(Struct, frozen=True, rename="camel", gc=False):
    """The present state of a container, and the one before its last restart."""

    state: _ContainerState = _ContainerState()
    last_state: _ContainerState = _ContainerState()


class _NodeName(Struct, frozen=True, rename="camel", gc=False):
    node_name: str = ""


class _EndedStatus(Struct, frozen=True, rename="camel", gc=False):
    container_statuses: tuple[ContainerEnds, ...] | None = None


class ListedPod(Struct, frozen=True, gc=False):
    """A pod with the ends of its containers, for a decision that lists pods: no watch holds them."""

    metadata: PodMetadata
    spec: _NodeName = _NodeName()
    status: _EndedStatus = _EndedStatus()

    @property
    def containers(self) -> tuple[ContainerEnds, ...]:
        """Return the ends of the containers of the pod, init containers left out."""
        return self.status.container_statuses or ()


LISTED_PODS = PODS.of(ListedPod)
