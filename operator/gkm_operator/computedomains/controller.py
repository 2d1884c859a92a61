"""The controller of ComputeDomains: threads, queue and metrics, and the choice of the workloads that a change concerns.

One thread checks at intervals whether ComputeDomains are installed, and whether Grove manages them.
The watches and the queues start when they are found for the first time; without them, this controller only reports
that, and the other controllers of the process go on. No remembered state decides: a new process continues from the
state of the API server.
"""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

from gkm.api.computedomains import ComputeDomain
from gkm.api.config import Config
from gkm.api.domain_capacity import DomainCapacity
from gkm.api.grove import PodCliqueSet
from gkm.api.network_settings import Network
from gkm.api.resource_claims import ResourceClaimTemplate
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff, Clock
from gkm.kube.api import Api
from gkm.kube.controller import Controller
from gkm.kube.errors import ApiError
from gkm.kube.events import Recorder
from gkm.kube.informers import Informers
from gkm.kube.refusals import RefusalEvents
from gkm.kube.secrets import DEFAULT_NAMESPACE
from gkm.kube.workqueue import WorkQueue

from gkm_operator import metrics
from gkm_operator.computedomains import events
from gkm_operator.computedomains.capacity import CapacityReport
from gkm_operator.computedomains.claims import ClaimReader
from gkm_operator.computedomains.lifecycle.labels import LabelReconciler, joins_domain_of_set
from gkm_operator.computedomains.lifecycle.sets import SetReconciler
from gkm_operator.computedomains.lifecycle.writer import DomainWriter
from gkm_operator.computedomains.objects import Workload, WorkloadKind, workload_of
from gkm_operator.computedomains.pacing import CreationPacing, WritePacing
from gkm_operator.computedomains.presence import Presence, observe
from gkm_operator.computedomains.status.controller import DomainStatusController
from gkm_operator.computedomains.watcher import DomainPods, DomainWatcher, is_overdue
from gkm_operator.pods import WatchedPod

_LOG = logging.getLogger(__name__)


CALM_SECONDS = 1.0
"""Seconds between a change and the reconcile, if this controller's own writes may have caused the change."""

Enqueue = Callable[[Workload, float], None]
"""Schedules a workload after some seconds."""


class WorkloadReconciler:
    """Reconciles the ComputeDomains of one workload: a PodCliqueSet or a label value. Thread-safe across workloads."""

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
        self._pods = pods
        watcher.sets.subscribe(self._set_changed)
        watcher.domains.subscribe(self._domain_changed)
        watcher.templates.subscribe(self._template_changed)
        pods.changed.append(self._pod_changed)

    def reconcile(self, workload: Workload) -> float | None:
        """Reconcile the domains of one workload; return the seconds until the next pass, None if no work is left.

        Raises:
            ApiError, Retry: a request failed, and the workload must be reconciled again.
        """
        if workload.kind is WorkloadKind.LABEL:
            return self._labels.reconcile(workload, self.presence)
        return self.sets.reconcile(workload, self.presence)

    def enqueue_all(self) -> None:
        """Schedule every workload, because a fact about the whole cluster changed."""
        for pod_clique_set in self._watcher.sets.values():
            self._enqueue(_workload_of(pod_clique_set), 0.0)
        for domain in self._watcher.domains.values():
            if (workload := workload_of(domain)) is not None:
                self._enqueue(workload, 0.0)
        for namespace, name in self._pods.labels():
            self._enqueue(Workload(WorkloadKind.LABEL, namespace, name), 0.0)

    def _set_changed(self, old: PodCliqueSet | None, new: PodCliqueSet | None) -> None:
        # Grove's operator writes the status of a set all the time: that changes no generation.
        if old is not None and new is not None and _request(old) == _request(new):
            return
        if (pod_clique_set := new or old) is not None:
            self._enqueue(_workload_of(pod_clique_set), 0.0)

    def _domain_changed(self, old: ComputeDomain | None, new: ComputeDomain | None) -> None:
        if old is not None and new is not None and _relevant(old) == _relevant(new):
            return
        going = new is None or new.metadata.terminating
        for domain in (old, new):
            if domain is not None:
                # A label may name the domain of a user: once that goes, GKM creates one.
                label = Workload(WorkloadKind.LABEL, domain.metadata.namespace, domain.metadata.name)
                self._enqueue(workload_of(domain) or label, 0.0 if going else CALM_SECONDS)

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
        if not self._pods.gpus.any_gpu_class(template.device_classes()):
            return
        for pod_clique_set in self._watcher.sets.values():
            if pod_clique_set.metadata.namespace == template.metadata.namespace:
                self._enqueue(_workload_of(pod_clique_set), CALM_SECONDS)

    def _pod_changed(self, old: WatchedPod | None, new: WatchedPod | None) -> None:
        """Schedule the label of a pod."""
        for pod in (old, new):
            if pod is not None and pod.domain and not joins_domain_of_set(pod, self._watcher):
                workload = Workload(WorkloadKind.LABEL, pod.metadata.namespace, pod.domain)
                self._enqueue(workload, 0.0 if old is None else CALM_SECONDS)


def _workload_of(pod_clique_set: PodCliqueSet) -> Workload:
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


NAME = "computedomains"
WORKERS = 4
PER_NAMESPACE = 2
CHECK_SECONDS = 30.0
"""Seconds between two checks whether ComputeDomains are installed and who manages them; each costs five requests."""
LEAST_CHECK_SECONDS = 5.0
LONGEST_ABSENCE_SECONDS = 120.0
"""Limit of seconds between checks while ComputeDomains are not installed; most clusters never have them."""
BACKOFF = Backoff(0.5, 60.0)


class DomainsController(Controller):
    """The controller of ComputeDomains. It runs in the leader only, and rebuilds all state from lists."""

    def __init__(
        self,
        api: Api,
        config: Config,
        *,
        instance: str = "",
        informers: Informers | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        check_seconds: float = CHECK_SECONDS,
        backoff: Backoff = BACKOFF,
    ) -> None:
        super().__init__(NAME)
        self._api = api
        self._settings = config.network
        self._check_seconds = check_seconds
        self._backoff = backoff
        self._absence = Backoff(check_seconds, max(LONGEST_ABSENCE_SECONDS, check_seconds))
        self._misses = 0
        self.queue: WorkQueue[Workload] = WorkQueue(
            NAME,
            self._reconcile,
            workers=WORKERS,
            backoff=backoff,
            group=lambda workload: workload.namespace,  # a namespace of thousands delays no other
            per_group=PER_NAMESPACE,
            observe=metrics.reconcile_recorder(NAME),
        )
        recorder = Recorder(api, events.REPORTER, instance or NAME)
        on_refused = RefusalEvents(recorder)
        self.watcher = DomainWatcher(api, on_refused)
        pacing = WritePacing()  # of both halves: a write costs NVIDIA's controller the same from each half
        self.capacity = CapacityReport(
            api,
            namespace,
            capacity=self._known_capacity,
            conditions=lambda: self.presence.conditions(),  # noqa: PLW0108 -- each check has its own
        )
        self.status = DomainStatusController(
            api,
            config,
            self.watcher,
            self.capacity.changed,
            instance=instance or NAME,
            pacing=pacing,
            on_refused=on_refused,
            informers=informers,
        )
        observer = self.status.observer
        self._reconciler = WorkloadReconciler(
            api, self.watcher, observer.pods, recorder, settings=config.network, enqueue=self.queue.add, pacing=pacing
        )
        self.watcher.domains.subscribe(observer.domain_changed)
        self.watcher.templates.subscribe(observer.template_changed)
        self._working = False
        self.queues = [self.queue, self.status.queue, self.capacity.queue]
        metrics.COMPUTEDOMAINS.labels("missing").set_function(self._reconciler.sets.number_missing)

    @property
    def presence(self) -> Presence:
        """Return whether ComputeDomains can be managed, as the last check of the cluster found."""
        return self._reconciler.presence

    def _known_capacity(self) -> DomainCapacity | None:
        """Return the capacity; None until the first lists of nodes, pods and claim templates are complete."""
        return self.status.observer.capacity() if self._working else None

    def run(self) -> None:
        """Check at intervals until `stop` whether the API server has the kinds and rights for ComputeDomains."""
        self.status.observer.follow_nodes()
        self.repeat(self._check, self._backoff, least=min(LEAST_CHECK_SECONDS, self._check_seconds))

    def _reconcile(self, workload: Workload) -> float | None:
        try:
            return self._reconciler.reconcile(workload)
        except ApiError as error:
            if error.not_found:
                self.wake()  # the kind may be gone
            raise

    def _check(self) -> float:
        found = observe(self._api, self._settings.grove_cluster_role, self.presence)
        self._apply(found)
        self.capacity.changed()
        if found.available:
            self._misses = 0
            return self._check_seconds if self._working else min(LEAST_CHECK_SECONDS, self._check_seconds)
        self._misses += 1
        return self._absence.pause(self._misses)

    def _apply(self, found: Presence) -> None:
        """Use what a check found; the queues start once, when every list is complete."""
        if found is not self.presence:
            log_fields = fields(
                available=found.available, grove=found.grove_manages, imex=found.imex, why=found.message
            )
            if found.available:
                _LOG.info("ComputeDomains available", extra=log_fields)
            else:
                _LOG.warning("ComputeDomains not available, looked for again", extra=log_fields)
            if found.available and found.imex is not self.presence.imex:
                self.status.imex_changed(found.imex)
            self._reconciler.presence = found
            self._reconciler.enqueue_all()
            self.capacity.changed()
        if not found.available:
            self.capacity.queue.start()  # a condition of an earlier leader must not stay
            return
        self.watches.start(
            *self.watcher.reflectors(sets=found.sets), *self.status.observer.reflectors(grove=found.sets)
        )
        if not self._working and self.wait(lambda: self.watches.synced, self._check_seconds):
            self._working = True
            self.capacity.changed()
            self.start_queues()
