"""The pods that matter to ComputeDomains: those with claims or our label, and those that use GPUs of a node.

A cluster has 100,000 pods. Each is reduced to the fields that decide when it is decoded, other pods are not stored, and
equal values of several pods are stored once: 100,000 stored pods take 131 MiB, 10,000 of them 21 MiB (CPython 3.11).
Must never write to the API server.
"""

from collections.abc import Iterable
from copy import copy
from datetime import datetime
from functools import lru_cache
from sys import intern
from typing import Self, TypeVar

from gkm.api.mnnvl_metadata import DOMAIN_LABEL, MnnvlMetadata, Owner
from gkm.api.pod_specs import PodClaim, PodSpec
from gkm.kube.api import Api, Key
from gkm.kube.index import Index
from gkm.kube.memory import MAX_HELD_BYTES, held_bytes
from gkm.kube.reflector import OnChange, OnRefused, Reflector, no_report
from gkm.kube.resources import Resource
from msgspec import Struct, structs

from gkm_operator.mnnvl.gpu_requests import DeviceClasses, GPURequests

T = TypeVar("T")

OVERDUE_SECONDS = 60.0
_MAX_OWNERS = 4
_TERMINAL_PHASES = ("Succeeded", "Failed")


@lru_cache(maxsize=1 << 12)  # the replicas of one workload have equal owners and claims
def _deduplicated(value: T) -> T:
    """Return the first equal value, so that later ones need not be stored."""
    return value


def _shared_owners(owners: tuple[Owner, ...] | None) -> tuple[Owner, ...] | None:
    """Return the owners that can exist, a few of them, and the one that controls the pod in any case."""
    possible = [owner for owner in owners or () if owner.possible]
    possible.sort(key=lambda owner: not owner.controller)
    return _deduplicated(tuple(possible[:_MAX_OWNERS])) or None


def _shared_claims(claims: tuple[PodClaim, ...]) -> tuple[PodClaim, ...]:
    return _deduplicated(claims) if held_bytes(claims) <= MAX_HELD_BYTES else claims


@lru_cache(maxsize=1 << 12)
def _labels(items: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return the first equal labels, as `_deduplicated`; they must not be changed."""
    return dict(items)


class DomainPodMetadata(MnnvlMetadata, frozen=True, gc=False):
    """The metadata of a pod, without annotations, finalizers and versions."""

    def __post_init__(self) -> None:
        MnnvlMetadata.__post_init__(self)
        labels = _labels(tuple(sorted(self.labels.items()))) if self.labels else None
        for name, value in (
            ("namespace", intern(self.namespace)),
            ("creation_timestamp", intern(self.creation_timestamp)),
            ("labels", labels),
            ("owner_references", _shared_owners(self.owner_references)),
            ("resource_version", ""),
            ("annotations", None),
            ("finalizers", None),
        ):
            structs.force_setattr(self, name, value)


class ScheduledSpec(PodSpec, frozen=True):
    """The specification of a pod, with its node."""

    node_name: str = ""


class DomainPodStatus(Struct, frozen=True, rename="camel", gc=False):
    """The phase of a pod, and when its kubelet accepted it."""

    phase: str = ""
    start_time: str = ""


_NO_SPEC, _NO_STATUS = ScheduledSpec(), DomainPodStatus()


class DomainPod(Struct, frozen=True, gc=False):
    """A pod. `spec` and `status` are empty once it is decoded.

    `node` is "" until it is scheduled, and `started` until its kubelet accepted it. `running`: its claims are
    prepared, and a container started. `requests_gpus` counts resources only: whether one of its `claims` is for GPUs
    depends on another object (`DomainPods.requests_gpus`).
    """

    metadata: DomainPodMetadata
    spec: ScheduledSpec = _NO_SPEC
    status: DomainPodStatus = _NO_STATUS
    node: str = ""
    started: str = ""
    running: bool = False
    ended: bool = False
    requests_gpus: bool = False
    claims: tuple[PodClaim, ...] = ()

    def __post_init__(self) -> None:
        for name, value in (
            ("node", intern(self.spec.node_name)),
            ("started", intern(self.status.start_time)),
            ("running", self.status.phase == "Running"),
            ("ended", self.status.phase in _TERMINAL_PHASES),
            ("claims", _shared_claims(self.spec.claims)),
            ("spec", _NO_SPEC),
            ("status", _NO_STATUS),
        ):
            structs.force_setattr(self, name, value)

    def outline(self, why: str) -> Self:
        """Return it with less metadata."""
        outlined = copy(self)  # not made anew from the spec, which decoding has emptied
        structs.force_setattr(outlined, "metadata", self.metadata.outline(why))
        return outlined

    @property
    def key(self) -> Key:
        """Return namespace and name."""
        return self.metadata.namespace, self.metadata.name

    @property
    def templates(self) -> frozenset[str]:
        """Return the names of the ResourceClaimTemplates that it references."""
        return claim_templates(self.claims)

    @property
    def template_keys(self) -> list[Key]:
        """Return namespace and name of these templates."""
        return [(self.metadata.namespace, template) for template in self.templates]

    @property
    def domain(self) -> str:
        """Return the ComputeDomain that its label names, "" without one."""
        return self.metadata.label(DOMAIN_LABEL)


def pods(gpus: GPURequests) -> Resource[DomainPod]:
    """Return the kind Pod as `DomainPod`, for one rule of GPU requests."""

    class Pod(DomainPod, frozen=True, gc=False):
        def __post_init__(self) -> None:
            structs.force_setattr(self, "requests_gpus", gpus.any(self.spec))
            DomainPod.__post_init__(self)

    return Resource("v1", "Pod", "pods", namespaced=True, type=Pod)


def claim_templates(claims: Iterable[PodClaim]) -> frozenset[str]:
    """Return the names of the ResourceClaimTemplates that claims reference."""
    return frozenset(claim.resource_claim_template_name or "" for claim in claims) - {""}


def matters(pod: DomainPod) -> bool:
    """Return whether a pod is stored: it has not ended, and has claims, our label, or GPUs of a node.

    A terminating pod has not ended.
    """
    return not pod.ended and bool(pod.claims or pod.domain or (pod.requests_gpus and pod.node))


def is_overdue(pod: DomainPod, now: datetime) -> bool:
    """Return whether a pod has not ended long after its grace period: the node is dead, or its kubelet cannot stop it.

    The deletionTimestamp of a pod is the end of its grace period.
    """
    try:
        return (now - datetime.fromisoformat(pod.metadata.deletion_timestamp or "")).total_seconds() >= OVERDUE_SECONDS
    except (ValueError, TypeError):  # none, or without a time zone
        return False


class DomainPods:
    """All living pods that matter, indexed. Thread-safe.

    The callbacks in `changed` get each change after the indexes have it; add them before the start.
    """

    def __init__(self, api: Api, gpus: GPURequests, on_refused: OnRefused = no_report) -> None:
        self.changed: list[OnChange[DomainPod]] = []
        self.gpus = gpus
        self.reflector = Reflector(api, pods(gpus), self.change, retain=matters, on_refused=on_refused)
        self._by_template: Index[Key, DomainPod] = Index(lambda pod: pod.template_keys, _uid)
        self._by_label: Index[Key, DomainPod] = Index(_label_keys, _uid)
        self._by_node: Index[str, DomainPod] = Index(lambda pod: [pod.node] if pod.node else [], _uid)

    def change(self, old: DomainPod | None, new: DomainPod | None) -> None:
        """Apply a change of a pod; ignore one of fields that are not stored."""
        if old == new:
            return
        for index in (self._by_template, self._by_label):
            index.change(old, new)
        self._by_node.change(old, new)
        for callback in self.changed:
            callback(old, new)

    def requests_gpus(self, pod: DomainPod, classes: DeviceClasses) -> bool:
        """Return whether a pod requests GPUs, by a resource or by a claim."""
        return pod.requests_gpus or any(self.gpus.any_gpu_class(classes(claim)) for claim in pod.claims)

    def using(self, namespace: str, template: str) -> tuple[DomainPod, ...]:
        """Return the living pods of a namespace that reference a ResourceClaimTemplate, in no order."""
        return self._by_template.get((namespace, template))

    def labeled(self, namespace: str, domain: str) -> tuple[DomainPod, ...]:
        """Return the living pods of a namespace whose label names a ComputeDomain, in no order."""
        return self._by_label.get((namespace, domain))

    def on_node(self, node: str) -> tuple[DomainPod, ...]:
        """Return the stored pods of a node, in no order."""
        return self._by_node.get(node)


def _uid(pod: DomainPod) -> str:
    return pod.metadata.uid


def _label_keys(pod: DomainPod) -> list[Key]:
    return [(pod.metadata.namespace, pod.domain)] if pod.domain else []
