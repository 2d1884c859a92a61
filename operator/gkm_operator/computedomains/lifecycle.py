"""Creates, releases and lets go of single ComputeDomains, with the events about it: the same for sets and for labels.

Every step tolerates a second operator and a kill before or after it: the next reconcile sees what was done.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from gkm.api.computedomains import ComputeDomain
from gkm.api.mnnvl_metadata import NODE_LABEL, Owner
from gkm.hoststate.lru import LRUCache
from gkm.kube.api import Api
from gkm.kube.errors import NO_RESPONSE, ApiError
from gkm.kube.events import EventBody, Recorder, Regarding
from gkm.kube.resources import CLAIM_TEMPLATES, COMPUTEDOMAINS, Resource
from gkm.kube.workqueue import Retry

from gkm_operator.caches.throttling import EventBudget
from gkm_operator.computedomains import events, objects
from gkm_operator.computedomains.objects import DesiredDomain, Json
from gkm_operator.computedomains.watcher import DomainWatcher

_SERVER_WIDE = frozenset({NO_RESPONSE, 429, 503, 504})
"""Statuses of a server that is away or overloaded: the next request would fail, too."""


_MAX_EMITTED = 8192
"""Events of lasting states that are not sent again. Beyond it, the API server refuses a second one by its name."""


class NamesTaken(Retry):
    """Every name that a domain may have belongs to another object."""


class DomainWriter:
    """The writes about one domain. Thread-safe for different domains."""

    def __init__(self, api: Api, watcher: DomainWatcher, recorder: Recorder) -> None:
        self._api = api
        self._watcher = watcher
        self._recorder = recorder
        self._warnings = EventBudget()
        self._emitted: LRUCache[tuple[str, str, str], str] = LRUCache(_MAX_EMITTED)

    def create(self, desired: DesiredDomain, regarding: Regarding) -> None:
        """Create a domain, unless it exists.

        Raises:
            ApiError, NamesTaken: it was not created; an event says so.
            Retry: its name will be free in a moment.
        """
        try:
            made = self._create(desired)
        except (ApiError, NamesTaken) as error:
            self.warn(regarding, events.not_created(desired.purpose, _reason(error)), error)
            raise
        if made is not None:
            self._recorder.emit(regarding, events.created(made.metadata.name), made.metadata.uid)

    def release(self, domain: ComputeDomain, regarding: Regarding | None) -> None:
        """Remove the marks, then Grove's finalizer, then the domain itself; `regarding` None sends no event.

        Raises:
            ApiError: a step failed; an event says so, except for a domain that has changed meanwhile.
        """
        try:
            self._release(domain)
        except ApiError as error:
            if regarding is not None and not error.conflict:
                self.warn(regarding, events.not_deleted(domain.metadata.name, _reason(error)), error)
            raise
        if regarding is not None and not domain.metadata.terminating:
            self._recorder.emit(regarding, events.deleted(domain.metadata.name), domain.metadata.uid)

    def let_go(self, domain: ComputeDomain, regarding: Regarding | None) -> None:
        """Remove Grove's finalizer from a domain that is being deleted and is required: NVIDIA has torn it down.

        Raises:
            ApiError: it was not removed.
        """
        change = objects.without_finalizer(domain.metadata)
        if change and self._patch(COMPUTEDOMAINS, domain, change) and regarding is not None:
            self._recorder.emit(regarding, events.lost(domain.metadata.name), domain.metadata.uid)

    def add_owners(self, domain: ComputeDomain, owners: list[Owner]) -> None:
        """Add owners to a domain.

        Raises:
            ApiError: they were not added.
        """
        self._patch(COMPUTEDOMAINS, domain, objects.with_owners(domain.metadata, owners))

    def emit(self, regarding: Regarding, body: EventBody, occasion: str) -> None:
        """Send an event about a state that lasts, once for an occasion."""
        key = (regarding.uid, body.reason, occasion)
        if self._emitted.get(key) is None:
            self._emitted.put(key, body.reason)
            self._recorder.emit(regarding, body, occasion)

    def warn(self, regarding: Regarding, body: EventBody, error: Exception) -> None:
        """Send the event of a failure, at most once an hour for one text, unless the API server is away."""
        away = isinstance(error, ApiError) and error.status == NO_RESPONSE
        if not away and self._warnings.spend(regarding.uid):
            self._recorder.emit(regarding, body, f"{datetime.now(UTC):%Y-%m-%dT%H}")

    def _create(self, desired: DesiredDomain) -> ComputeDomain | None:
        """Return the new domain, None if it exists already."""
        for name in desired.names:
            if self._is_taken(desired, name):
                continue
            try:
                return self._api.create(COMPUTEDOMAINS, desired.manifest(name))
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
            # The watch lags behind this or another leader's write.
            found = self._api.get(COMPUTEDOMAINS, name, desired.workload.namespace)
            self._check_dying(desired, found)
            if desired.is_met_by(found):
                return None
        raise NamesTaken(
            f"other ComputeDomains or ResourceClaimTemplates of namespace {desired.workload.namespace} have the name "
            f"{' and '.join(desired.names)}; delete or rename them"
        )

    def _is_taken(self, desired: DesiredDomain, name: str) -> bool:
        """Return whether a name belongs to another domain, or to a claim template that NVIDIA's controller cannot make.

        A template that NVIDIA's controller made for a domain that is gone goes, too.
        """
        namespace = desired.workload.namespace
        holders = [domain for domain in (self._watcher.domain(namespace, name),) if domain is not None]
        holders += self._watcher.domains_with_template(namespace, name)
        for holder in holders:
            self._check_dying(desired, holder)
        template = self._watcher.template(namespace, name)
        foreign = template is not None and not template.metadata.label(NODE_LABEL)
        return foreign or not all(map(desired.is_met_by, holders))

    def _check_dying(self, desired: DesiredDomain, holder: ComputeDomain) -> None:
        """Raise Retry if the name is that of a former domain of the same workload: it is released, or already going."""
        if (
            holder.written_by_gkm
            and objects.workload_of(holder) == desired.workload
            and (holder.metadata.terminating or not desired.is_met_by(holder))
        ):
            raise Retry(f"a former ComputeDomain {holder.metadata.name} is not gone yet")

    def _release(self, domain: ComputeDomain) -> None:
        metadata = domain.metadata
        template = self._watcher.template(metadata.namespace, domain.template)
        if template is not None and template.metadata.label(NODE_LABEL) == metadata.uid:
            self._patch(CLAIM_TEMPLATES, template, objects.without_marks(template.metadata))
        # One write, so that no moment has the finalizer of a domain without its marks.
        changes = objects.without_finalizer(metadata) | objects.without_marks(metadata)
        if not self._patch(COMPUTEDOMAINS, domain, changes) or metadata.terminating:
            return
        try:
            self._api.delete(COMPUTEDOMAINS, metadata.name, metadata.namespace, uid=metadata.uid)
        except ApiError as error:
            # Gone, or another domain has its name: the watch reports both.
            if not error.not_found and not error.conflict:
                raise

    def _patch(self, resource: Resource[Any], value: Any, metadata: Json) -> bool:  # noqa: ANN401 -- either kind
        """Change the metadata of an object; return whether it exists. No change is no request."""
        if metadata:
            try:
                self._api.merge(resource, value.metadata.name, {"metadata": metadata}, value.metadata.namespace)
            except ApiError as error:
                if not error.not_found:
                    raise
                return False
        return True


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, ApiError) else str(error)


def run_all(actions: Iterable[Callable[[], None]]) -> None:
    """Run all actions, also after one of them failed, unless the API server is away or overloaded.

    Raises:
        ApiError, Retry: the first error.
    """
    errors: list[ApiError | Retry] = []
    for action in actions:
        try:
            action()
        except (ApiError, Retry) as error:
            errors.append(error)
            if isinstance(error, ApiError) and error.status in _SERVER_WIDE:
                raise
    if errors:
        raise errors[0]
