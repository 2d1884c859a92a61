"""Marks ComputeDomains and their claim templates as used, and writes the condition MNNVLReady.

The mark says how many living pods use an object, and which. ValidatingAdmissionPolicies refuse to delete an object
whose mark is not 0.

The controller of ComputeDomains starts it, and passes it every change of a ComputeDomain and of a claim template. Every
domain of the cluster is marked and gets a condition, also one of a user. A mark that protects is written at once,
everything else is paced (gkm_operator.computedomains.pacing).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from gkm.api.computedomains import ComputeDomain
from gkm.api.config import Config
from gkm.api.domain_readiness import MNNVLReadiness, ReadyReason, parse_readiness
from gkm.api.grammar import listed
from gkm.api.imex import IMEXMode
from gkm.api.meta import TRUE, timestamp
from gkm.api.mnnvl_metadata import MAX_USED_BY, MNNVL_READY, PODS_USING, USED_BY, MnnvlMetadata
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
from gkm_operator.computedomains.pacing import WritePacing
from gkm_operator.computedomains.status.observer import DomainObserver
from gkm_operator.computedomains.status.readiness import ObservedDomain, readiness
from gkm_operator.computedomains.watcher import DomainWatcher
from gkm_operator.pods import WatchedPod

UNUSED = "0"
MAX_USERS = 5
"""Limit of pod names in the annotation USED_BY."""

Annotations = Mapping[str, str | None]
"""Annotations to write; None removes an annotation."""


class Target(NamedTuple):
    """A ComputeDomain or its claim template, which carry annotations."""

    resource: Resource[Any]
    metadata: MnnvlMetadata


def mark(pods: Iterable[WatchedPod]) -> Annotations:
    """Return the annotations that say which pods use an object: pods that have not ended, also while they terminate."""
    names = sorted(pod.metadata.name for pod in pods)
    return {PODS_USING: str(len(names)), USED_BY: listed(names, MAX_USERS)[:MAX_USED_BY] or None}


def must_protect(metadata: MnnvlMetadata, wanted: Annotations) -> bool:
    """Return whether pods use an object that is not marked as used yet, so that the mark must be written at once."""
    return is_used(wanted.get(PODS_USING)) and not is_used(metadata.annotation(PODS_USING))


def is_used(count: str | None) -> bool:
    """Return whether a value of the annotation PODS_USING protects an object, as the admission policies read it."""
    return count not in (None, UNUSED)


def targets(observed: ObservedDomain) -> Iterator[Target]:
    """Yield the objects of a ComputeDomain to mark as used: first its claim template, then the domain.

    The claim template precedes: while its mark is not 0, NVIDIA's controller cannot tear a deleted domain down, and an
    update of the domain is what makes it try again.
    """
    if observed.template is not None and observed.serves:
        yield Target(CLAIM_TEMPLATES, observed.template.metadata)
    yield Target(COMPUTEDOMAINS, observed.domain.metadata)


def patch(target: Target, marks: Annotations, condition: Annotations) -> Annotations:
    """Return the annotations of an object to change; only the ComputeDomain gets the annotations of the condition.

    A claim template without a mark is as good as one with the mark 0, and costs no request.
    """
    resource, metadata = target
    if resource is CLAIM_TEMPLATES and metadata.annotation(PODS_USING) is None and not is_used(marks[PODS_USING]):
        return {}
    wanted = {**marks, **condition} if resource is COMPUTEDOMAINS else marks
    return {key: value for key, value in wanted.items() if metadata.annotation(key) != value}


_STATES = {
    ReadyReason.DOMAIN_LOST.value: "lost",
    ReadyReason.DOMAIN_TERMINATING.value: "terminating",
    ReadyReason.WAITING_FOR_PODS.value: "waiting",
    # A busy cluster always has pods that wait for nodes: no fault that an alert should count.
    ReadyReason.PODS_PENDING.value: "waiting",
}


def state_of(condition: MNNVLReadiness) -> str:
    """Return the state of a ComputeDomain for the metric, from its condition MNNVLReady."""
    return "ready" if condition.status == TRUE else _STATES.get(condition.reason, "notReady")


NAME = "domain-status"
WORKERS = 4
PER_NAMESPACE = 2
TEMPLATE_SECONDS = 30.0
"""Seconds that NVIDIA's controller may take for the claim template of a new domain before it is missing."""
SETTLE_SECONDS = 0.5
"""Seconds between a change that can wait and the reconcile, so that one reconcile covers several changes."""

Patch = tuple[Target, Annotations]


class DomainStatusController:
    """Writes annotations: the condition MNNVLReady of each ComputeDomain, and which pods use it and its claim template.

    `source` has the domains and claim templates, `observer` pods, nodes and PodCliques. All their lists must be
    complete before the queue starts, because a partial list would lower marks.
    """

    def __init__(
        self,
        api: Api,
        config: Config,
        source: DomainWatcher,
        capacity_changed: Callable[[], None],
        *,
        instance: str,
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
        self._states: dict[Key, str] = {}
        """The state of each ComputeDomain, for the metric."""
        self.observer = DomainObserver(
            api,
            config,
            source,
            self._domain_affected,
            capacity_changed,
            on_refused=on_refused,
            informers=informers or Informers(api),
        )
        self.queue: WorkQueue[Key] = WorkQueue(
            NAME,
            self.reconcile,
            workers=WORKERS,
            backoff=Backoff(0.5, 60.0),
            group=lambda key: key[0],
            per_group=PER_NAMESPACE,
            observe=metrics.reconcile_recorder(NAME),
        )

    def imex_changed(self, mode: IMEXMode) -> None:
        """Decide the conditions of all domains again after a change of who runs the IMEX daemons."""
        self.observer.host_imex = mode is IMEXMode.HOST_MANAGED
        for domain in self._source.domains.values():
            self.queue.add((domain.metadata.namespace, domain.metadata.name))

    def reconcile(self, key: Key) -> float | None:
        """Write the marks and the condition of a ComputeDomain if they are out of date.

        Return the seconds until the next write.

        Raises:
            ApiError: the API server refused a write.
        """
        observed = self._observe(key)
        if observed is None:
            self._pacing.forget(key)
            self._count(key, "")
            if not self.observer.pods.using(*key):
                self._unmark_orphan(key)
            return None
        self._unmark_orphan((key[0], observed.domain.template))
        old = parse_readiness(observed.domain.metadata.annotation(MNNVL_READY))
        new, again = self._condition(key, observed, old)
        self._count(key, "" if observed.is_leaving else state_of(new))
        marks = mark(observed.pods)
        condition = {} if new == old or observed.is_leaving else {MNNVL_READY: new.text()}
        patches = [(target, found) for target in targets(observed) if (found := patch(target, marks, condition))]
        if not patches:
            return again
        unprotected = {target.metadata.uid for target, _ in patches if must_protect(target.metadata, marks)}
        if urgent := self._pacing.unprotected(key, unprotected):
            patches = [(target, found) for target, found in patches if target.metadata.uid in urgent]
            again = 0.0  # for the rest, which is paced
        elif (wait := self._pacing.seconds(key, figures_only=_figures_only(patches, old, new))) > 0:
            return wait if again is None else min(wait, again)
        for target, annotations in patches:
            self._write(*target, annotations)
        self._pacing.wrote(key, urgent)
        if any(MNNVL_READY in annotations for _, annotations in patches):
            self._emit(observed.domain, old, new)
        return again

    def _count(self, key: Key, new: str) -> None:
        """Count a ComputeDomain by its state, "" without one; one worker at a time handles a domain."""
        old = self._states.pop(key, "")
        if new:
            self._states[key] = new
        for state, change in ((old, -1), (new, 1)):
            if state and old != new:
                metrics.COMPUTEDOMAINS.labels(state).inc(change)

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
        body = events.readiness_changed(domain, old, new)
        if body is not None and self._event_budget.spend(domain.metadata.uid):
            self._recorder.emit(events.of_domain(domain), body, new.last_transition_time)

    def _domain_affected(self, key: Key, urgent: bool) -> None:  # noqa: FBT001 -- the observer's callback
        self.queue.add(key, 0.0 if urgent else SETTLE_SECONDS)


def _figures_only(patches: Iterable[Patch], old: MNNVLReadiness | None, new: MNNVLReadiness) -> bool:
    """Return whether the reason and the use by pods stay the same."""
    if old is None or (old.status, old.reason) != (new.status, new.reason):
        return False
    marked = ((target.metadata, found) for target, found in patches if PODS_USING in found)
    return all(is_used(metadata.annotation(PODS_USING)) == is_used(found[PODS_USING]) for metadata, found in marked)
