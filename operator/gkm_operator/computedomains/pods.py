"""The pods that matter to ComputeDomains: those with claims or our label, and those that use GPUs of a node.

Must never write to the API server.
"""

from datetime import datetime

from gkm.kube.api import Key, ObjectEntry
from gkm.kube.index import Index
from gkm.kube.informers import Informers
from gkm.kube.reflector import OnChange, OnRefused, no_report

from gkm_operator.mnnvl.gpu_requests import DeviceClasses, GPURequests
from gkm_operator.pods import PODS, WatchedPod

OVERDUE_SECONDS = 60.0


def is_overdue(pod: WatchedPod, now: datetime) -> bool:
    """Return whether a pod has not ended long after its grace period: the node is dead, or its kubelet cannot stop it.

    The deletionTimestamp of a pod is the end of its grace period.
    """
    try:
        return (now - datetime.fromisoformat(pod.metadata.deletion_timestamp or "")).total_seconds() >= OVERDUE_SECONDS
    except (ValueError, TypeError):  # none, or without a time zone
        return False


class DomainPods:
    """All living pods that matter, indexed. Thread-safe.

    The callbacks in `changed` get each change after the indexes have it; add them before the start. A pod that is not
    known in full is none, and `on_refused` gets it.
    """

    def __init__(self, informers: Informers, gpus: GPURequests, on_refused: OnRefused = no_report) -> None:
        self.changed: list[OnChange[WatchedPod]] = []
        self.gpus = gpus
        self.watch = informers.select(PODS, self.change, wants=self.matters)
        self._on_refused = on_refused
        self._by_template: Index[Key, WatchedPod] = Index(lambda pod: pod.template_keys, _uid)
        self._by_label: Index[Key, WatchedPod] = Index(_label_keys, _uid)
        self._by_node: Index[str, WatchedPod] = Index(lambda pod: [pod.node] if pod.node else [], _uid)

    def matters(self, pod: WatchedPod) -> bool:
        """Return whether a pod has not ended, and has claims, our label, or GPUs of a node, or is not known in full."""
        uses = pod.claims or pod.domain or (pod.node and self.names_gpus(pod))
        return not pod.ended and bool(uses or pod.refused)

    def change(self, old: WatchedPod | None, new: WatchedPod | None) -> None:
        """Apply a change of a pod; ignore one of fields that are not stored."""
        if new is not None and new.refused:
            self._refuse(old, new)
            new = None
        if old is not None and old.refused:
            old = None
        if old == new:
            return
        for index in (self._by_template, self._by_label):
            index.change(old, new)
        self._by_node.change(old, new)
        for callback in self.changed:
            callback(old, new)

    def names_gpus(self, pod: WatchedPod) -> bool:
        """Return whether a pod requests GPUs by a resource."""
        return self.gpus.any_resource(pod.resources)

    def requests_gpus(self, pod: WatchedPod, classes: DeviceClasses) -> bool:
        """Return whether a pod requests GPUs, by a resource or by a claim."""
        return self.names_gpus(pod) or any(self.gpus.any_gpu_class(classes(claim)) for claim in pod.claims)

    def using(self, namespace: str, template: str) -> tuple[WatchedPod, ...]:
        """Return the living pods of a namespace that reference a ResourceClaimTemplate, in no order."""
        return self._by_template.get((namespace, template))

    def labeled(self, namespace: str, domain: str) -> tuple[WatchedPod, ...]:
        """Return the living pods of a namespace whose label names a ComputeDomain, in no order."""
        return self._by_label.get((namespace, domain))

    def on_node(self, node: str) -> tuple[WatchedPod, ...]:
        """Return the stored pods of a node, in no order."""
        return self._by_node.get(node)

    def _refuse(self, old: WatchedPod | None, new: WatchedPod) -> None:
        """Report a pod once: what is too large of it does not change."""
        if old is None or not old.refused:
            self._on_refused(PODS, ObjectEntry(*new.key, new.metadata.uid, new), new.refused)


def _uid(pod: WatchedPod) -> str:
    return pod.metadata.uid


def _label_keys(pod: WatchedPod) -> list[Key]:
    return [(pod.metadata.namespace, pod.domain)] if pod.domain else []
