"""Marks ComputeDomains and their claim templates as used, and writes the condition MNNVLReady and the capacity.

The controller of ComputeDomains starts it, and passes it every change of a ComputeDomain and of a claim template. Every
domain of the cluster is marked and gets a condition, also one of a user. A mark that protects is written at once,
everything else is paced (write_pacing).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from gkm.api.computedomains import ComputeDomain
from gkm.api.config import Config
from gkm.api.domain_readiness import MNNVLReadiness, ReadyReason, parse_readiness
from gkm.api.imex import IMEXMode
from gkm.api.meta import Condition, timestamp
from gkm.api.mnnvl_metadata import MNNVL_READY, PODS_USING, MnnvlMetadata
from gkm.hoststate.pacing import Backoff
from gkm.kube.api import Api, Key
from gkm.kube.errors import ApiError
from gkm.kube.events import Recorder
from gkm.kube.informers import Informers
from gkm.kube.live_objects import live_object
from gkm.kube.reflector import OnRefused, no_report
from gkm.kube.resources import CLAIM_TEMPLATES, COMPUTEDOMAINS, Resource
from gkm.kube.workqueue import WorkQueue

from gkm_operator import metrics
from gkm_operator.caches.throttling import EventBudget
from gkm_operator.computedomains import events
from gkm_operator.computedomains.capacity.report import CapacityReport
from gkm_operator.computedomains.status import readiness_events
from gkm_operator.computedomains.status.domain_states import DomainStates, state
from gkm_operator.computedomains.status.marks import Annotations, Target, is_used, mark, must_protect, patch, targets
from gkm_operator.computedomains.status.observed_domain import ObservedDomain
from gkm_operator.computedomains.status.observer import DomainObserver
from gkm_operator.computedomains.status.readiness import readiness
from gkm_operator.computedomains.watcher import DomainWatcher
from gkm_operator.computedomains.write_pacing import WritePacing

NAME = "domain-status"
WORKERS = 4
PER_NAMESPACE = 2
TEMPLATE_SECONDS = 30.0
"""The time that NVIDIA's controller has for the claim template of a new domain before it counts as missing."""
SETTLE_SECONDS = 0.5
"""The delay after a change that may wait, so that one reconcile handles the changes that come with it."""

Patch = tuple[Target, Annotations]


class DomainStatusController:
    """`source` has the ComputeDomains and claim templates, and `observer.pods` the pods, which both halves read.

    `conditions` returns the conditions of the whole feature.
    """

    def __init__(
        self,
        api: Api,
        config: Config,
        source: DomainWatcher,
        *,
        namespace: str,
        instance: str,
        conditions: Callable[[], Sequence[Condition]] = tuple,
        pacing: WritePacing | None = None,
        now: Callable[[], str] = timestamp,
        on_refused: OnRefused = no_report,
        informers: Informers | None = None,
    ) -> None:
        self._api = api
        self._source = source
        self._pacing = pacing or WritePacing()
        self._now = now
        self._recorder = Recorder(api, events.REPORTER, instance)
        self._event_budget = EventBudget()
        self._states = DomainStates()
        self.observer = DomainObserver(
            api,
            config,
            source,
            self._domain_affected,
            self.capacity_changed,
            on_refused=on_refused,
            informers=informers or Informers(api),
        )
        self._capacity = CapacityReport(api, namespace, capacity=self.observer.capacity, conditions=conditions)
        self._queue: WorkQueue[Key] = WorkQueue(
            NAME,
            self.reconcile,
            workers=WORKERS,
            backoff=Backoff(0.5, 60.0),
            group=lambda key: key[0],
            per_group=PER_NAMESPACE,
            observe=metrics.reconcile_recorder(NAME),
        )

    @property
    def synced(self) -> bool:
        """Return whether every watch has listed once."""
        return self.observer.synced

    def watch(self, *, grove: bool) -> None:
        """Start the watches that are not started; that of PodCliques only if their kind is installed (`grove`)."""
        self.observer.start(grove=grove)

    def work(self) -> None:
        """Start to write. Every list, also that of ComputeDomains, must be complete: half a list is a falling mark."""
        self._queue.start()
        self._capacity.changed()
        self._capacity.queue.start()

    @property
    def queues(self) -> list[WorkQueue[Any]]:
        """Return the queues, whose workers write."""
        return [self._queue, self._capacity.queue]

    def capacity_changed(self) -> None:
        """Write the ConfigMap soon: the capacity or a condition of the feature may have changed."""
        self._capacity.changed()

    def imex_changed(self, mode: IMEXMode) -> None:
        """Decide all domains again by who runs the IMEX daemons now."""
        self.observer.host_imex = mode is IMEXMode.HOST_MANAGED
        for domain in self._source.domains.values():
            self._queue.add((domain.metadata.namespace, domain.metadata.name))

    def reconcile(self, key: Key) -> float | None:
        """Write what is out of date; return the seconds until the rest may be written.

        Raises:
            ApiError: the API server refused a write.
        """
        observed = self._observe(key)
        if observed is None:
            self._pacing.forget(key)
            self._states.record(key, "")
            if not self.observer.pods.using(*key):
                self._unmark_orphan(key)
            return None
        self._unmark_orphan((key[0], observed.domain.template))
        old = parse_readiness(observed.domain.metadata.annotation(MNNVL_READY))
        new, again = self._condition(key, observed, old)
        self._states.record(key, "" if observed.is_leaving else state(new))
        marks = mark(observed.pods)
        condition = {} if new == old or observed.is_leaving else {MNNVL_READY: new.text()}
        patches = [(target, found) for target in targets(observed) if (found := patch(target, marks, condition))]
        if not patches:
            return again
        unprotected = {meta.uid for (_, meta), _ in patches if must_protect(meta, marks)}
        if urgent := self._pacing.unprotected(key, unprotected):
            patches = [(target, found) for target, found in patches if target[1].uid in urgent]
            again = 0.0  # for the rest, which is paced
        elif (wait := self._pacing.seconds(key, figures_only=_figures_only(patches, old, new))) > 0:
            return wait if again is None else min(wait, again)
        for (resource, metadata), annotations in patches:
            self._write(resource, metadata, annotations)
        self._pacing.wrote(key, urgent)
        if any(MNNVL_READY in annotations for _, annotations in patches):
            self._emit(observed.domain, old, new)
        return again

    def _observe(self, key: Key) -> ObservedDomain | None:
        """Return what is known of a domain, with all annotations, which the watch does not hold of a large one."""
        observed = self.observer.observe(key)
        if observed is None or not observed.domain.metadata.oversized:
            return observed
        domain = live_object(self._api, COMPUTEDOMAINS, *key)
        return None if domain is None else replace(observed, domain=domain)

    def _condition(
        self, key: Key, observed: ObservedDomain, old: MNNVLReadiness | None
    ) -> tuple[MNNVLReadiness, float | None]:
        """Return the condition, and the seconds until it may change without a change of an object."""
        patience = TEMPLATE_SECONDS - self._pacing.age(key)
        is_new = patience > 0 and (old is None or old.reason != ReadyReason.TEMPLATE_MISSING)
        new = readiness(observed, old, self._now(), is_new=is_new)
        return new, patience if is_new and observed.template is None and observed.expected else None

    def _unmark_orphan(self, template: Key) -> None:
        """Let NVIDIA's controller remove a marked claim template of a domain that is gone.

        Its running pods end first, unless a new domain waits for the name.
        """
        orphan = self.observer.orphan(*template)
        if orphan is not None and is_used(orphan.metadata.annotation(PODS_USING)):
            self._write(CLAIM_TEMPLATES, orphan.metadata, mark(()))

    def _write(self, resource: Resource[Any], metadata: MnnvlMetadata, annotations: Annotations) -> None:
        # With its uid: the API server refuses the patch for an object that was created again under this name.
        change = {"metadata": {"uid": metadata.uid, "annotations": dict(annotations)}}
        try:
            self._api.merge(resource, metadata.name, change, metadata.namespace)
        except ApiError as error:
            if not error.not_found:
                raise

    def _emit(self, domain: ComputeDomain, old: MNNVLReadiness | None, new: MNNVLReadiness) -> None:
        body = readiness_events.event_of(domain, old, new)
        if body is not None and self._event_budget.spend(domain.metadata.uid):
            self._recorder.emit(readiness_events.regarding(domain), body, new.last_transition_time)

    def _domain_affected(self, key: Key, urgent: bool) -> None:  # noqa: FBT001 -- the observer's callback
        self._queue.add(key, 0.0 if urgent else SETTLE_SECONDS)


def _figures_only(patches: Iterable[Patch], old: MNNVLReadiness | None, new: MNNVLReadiness) -> bool:
    """Return whether neither the reason changes, nor whether pods use an object."""
    if old is None or (old.status, old.reason) != (new.status, new.reason):
        return False
    marks = ((meta.annotation(PODS_USING), found[PODS_USING]) for (_, meta), found in patches if PODS_USING in found)
    return all(is_used(before) == is_used(after) for before, after in marks)
