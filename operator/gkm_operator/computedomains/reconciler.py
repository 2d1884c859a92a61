"""Decides which workloads a change concerns, and reconciles a workload. Starts no thread.

Nothing here is remembered that decides: a new process continues from what the API server has.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from gkm.api.computedomains import ComputeDomain
from gkm.api.grove import PodCliqueSet
from gkm.api.network_settings import Network
from gkm.api.resource_claims import ResourceClaimTemplate
from gkm.hoststate.pacing import Clock
from gkm.kube.api import Api
from gkm.kube.events import Recorder

from gkm_operator.computedomains.claims import ClaimReader
from gkm_operator.computedomains.lifecycle.creation_pacing import CreationPacing
from gkm_operator.computedomains.lifecycle.grove_pods import joins_domain_of_set
from gkm_operator.computedomains.lifecycle.labels import LabelReconciler
from gkm_operator.computedomains.lifecycle.sets import SetReconciler
from gkm_operator.computedomains.lifecycle.writer import DomainWriter
from gkm_operator.computedomains.objects import Workload, WorkloadKind, workload_of
from gkm_operator.computedomains.pods import DomainPods, is_overdue
from gkm_operator.computedomains.presence import Presence
from gkm_operator.computedomains.watcher import DomainWatcher
from gkm_operator.computedomains.write_pacing import WritePacing
from gkm_operator.pods import WatchedPod

CALM_SECONDS = 1.0
"""The delay after a change that may be an effect of this controller's own writes: the watch delivers them meanwhile."""

Enqueue = Callable[[Workload, float], None]
"""Schedules a workload, in some seconds."""


class WorkloadReconciler:
    """Thread-safe for different workloads. `presence` is set by the controller."""

    def __init__(
        self,
        api: Api,
        watcher: DomainWatcher,
        pods: DomainPods,
        recorder: Recorder,
        *,
        settings: Network,
        enqueue: Enqueue,
        pacing: WritePacing,
        clock: Clock = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.presence = Presence()

        def is_abandoned(domain: ComputeDomain) -> bool:
            users = pods.using(domain.metadata.namespace, domain.template)
            return bool(users) and all(is_overdue(pod, now()) for pod in users)

        writer = DomainWriter(api, watcher, recorder, is_abandoned)
        claims, creations = ClaimReader(api, clock), CreationPacing(clock)
        self.sets = SetReconciler(
            api, watcher, writer, settings, claims=claims, creations=creations, is_abandoned=is_abandoned
        )
        self._labels = LabelReconciler(
            api, watcher, pods, writer, settings, claims=claims, creations=creations, pacing=pacing, clock=clock
        )
        self._watcher = watcher
        self._enqueue = enqueue
        self._gpus = pods.gpus
        watcher.set_changed.append(self._set_changed)
        watcher.domain_changed.append(self._domain_changed)
        watcher.template_changed.append(self._template_changed)
        pods.changed.append(self._pod_changed)

    def reconcile(self, workload: Workload) -> float | None:
        """Do what one workload needs; return the seconds until the rest may be done, None without a rest.

        Raises:
            ApiError, Retry: something failed, and the workload must be reconciled again.
        """
        if workload.kind is WorkloadKind.LABEL:
            return self._labels.reconcile(workload, self.presence)
        return self.sets.reconcile(workload, self.presence)

    def enqueue_all(self) -> None:
        """Schedule every workload: what is known of the cluster as a whole has changed."""
        for pod_clique_set in self._watcher.sets.values():
            self._enqueue(_key(pod_clique_set), 0.0)
        for domain in self._watcher.domains.values():
            if (workload := workload_of(domain)) is not None:
                self._enqueue(workload, 0.0)

    def _set_changed(self, old: PodCliqueSet | None, new: PodCliqueSet | None) -> None:
        # Grove's operator writes the status of a set all the time: that changes no generation.
        if old is not None and new is not None and _request(old) == _request(new):
            return
        if (pod_clique_set := new or old) is not None:
            self._enqueue(_key(pod_clique_set), 0.0)

    def _domain_changed(self, old: ComputeDomain | None, new: ComputeDomain | None) -> None:
        if old is not None and new is not None and _relevant(old) == _relevant(new):
            return
        going = new is None or new.metadata.terminating
        for domain in (old, new):
            if domain is not None and (workload := workload_of(domain)) is not None:
                self._enqueue(workload, 0.0 if going else CALM_SECONDS)

    def _template_changed(self, old: ResourceClaimTemplate | None, new: ResourceClaimTemplate | None) -> None:
        """Schedule what depends on a claim template.

        Without its template, a domain that is being deleted does not work any more. The groups of the namespace's sets
        may depend on a template that requests GPUs.
        """
        template = new or old
        if template is None:
            return
        if new is None:
            for domain in self._watcher.domains_with_template(template.metadata.namespace, template.metadata.name):
                self._domain_changed(None, domain)
        if not self._gpus.any_gpu_class(template.device_classes()):
            return
        for pod_clique_set in self._watcher.sets.values():
            if pod_clique_set.metadata.namespace == template.metadata.namespace:
                self._enqueue(_key(pod_clique_set), CALM_SECONDS)

    def _pod_changed(self, old: WatchedPod | None, new: WatchedPod | None) -> None:
        """Schedule the label of a pod."""
        for pod in (old, new):
            if pod is not None and pod.domain and not joins_domain_of_set(pod, self._watcher):
                workload = Workload(WorkloadKind.LABEL, pod.metadata.namespace, pod.domain)
                self._enqueue(workload, 0.0 if old is None else CALM_SECONDS)


def _key(pod_clique_set: PodCliqueSet) -> Workload:
    return Workload(WorkloadKind.SET, pod_clique_set.metadata.namespace, pod_clique_set.metadata.name)


def _request(pod_clique_set: PodCliqueSet) -> object:
    metadata = pod_clique_set.metadata
    return metadata.uid, metadata.generation, metadata.annotations, metadata.terminating


def _relevant(domain: ComputeDomain) -> object:
    metadata = domain.metadata
    return (
        metadata.uid,
        metadata.labels,
        metadata.finalizers,
        metadata.owner_references,
        metadata.terminating,
        metadata.oversized,
        domain.in_use,
    )
