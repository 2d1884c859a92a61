"""Creates and releases single ComputeDomains, with the events about it: the same for sets and for labels.

Every step tolerates a second operator and a kill before or after it: the next reconcile sees the result.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from gkm.api.computedomains import ComputeDomain
from gkm.api.meta import timestamp
from gkm.api.mnnvl_metadata import NODE_LABEL, MnnvlMetadata, Owner
from gkm.hoststate.lru import LRUCache
from gkm.kube.api import Api
from gkm.kube.errors import NO_RESPONSE, ApiError
from gkm.kube.events import EventBody, Recorder, Regarding
from gkm.kube.live_objects import live_object
from gkm.kube.resources import COMPUTEDOMAINS
from gkm.kube.workqueue import Retry

from gkm_operator.caches.throttling import EventBudget
from gkm_operator.computedomains import events, objects
from gkm_operator.computedomains.objects import DesiredDomain, Json
from gkm_operator.computedomains.watcher import DomainWatcher

_MAX_EMITTED = 8192
"""Limit of remembered Events about lasting states; beyond it, the API server refuses a duplicate by its name."""


class NamesInUse(Retry):
    """Every possible name for a ComputeDomain belongs to another object."""


class DomainWriter:
    """Creates and releases single ComputeDomains, with Events. Thread-safe for different domains.

    `is_abandoned` returns whether only pods that should have ended use a domain.
    """

    def __init__(
        self, api: Api, watcher: DomainWatcher, recorder: Recorder, is_abandoned: Callable[[ComputeDomain], bool]
    ) -> None:
        self._api = api
        self._watcher = watcher
        self._recorder = recorder
        self._is_abandoned = is_abandoned
        self._warnings = EventBudget()
        self._emitted: LRUCache[tuple[str, str, str], str] = LRUCache(_MAX_EMITTED)

    def create(self, desired: DesiredDomain, regarding: Regarding) -> None:
        """Create a ComputeDomain unless it exists; send an Event on `regarding`.

        Raises:
            ApiError, NamesInUse: the domain was not created; an Event names the reason.
            Retry: the name is still in use, and will be free in a moment.
        """
        try:
            made = self._create(desired)
        except (ApiError, NamesInUse) as error:
            self.warn(regarding, events.not_created(desired.purpose, _reason(error)), error)
            raise
        if made is not None:
            self._recorder.emit(regarding, events.created(made.metadata.name), made.metadata.uid)

    def release(self, domain: ComputeDomain, regarding: Regarding | None, *, lost: bool = False) -> None:
        """Release a ComputeDomain: remove Grove's finalizer, then delete the domain; `regarding` None sends no Event.

        Marks stay: while pods use the domain, the mark of its claim template delays NVIDIA's teardown. `lost` is for a
        domain that is required and that another client deleted. Both steps have the version that was observed as their
        precondition: another leader may have seen later that the domain is required, or pods may use it.

        Raises:
            ApiError: a step failed; an event names the reason, except for a domain that has changed meanwhile.
        """
        metadata = self.whole(domain).metadata
        change = objects.without_finalizer(metadata)
        try:
            current = self._patch(metadata, change) if change else domain
            if current is not None and not metadata.terminating:
                self._delete(current.metadata)
        except ApiError as error:
            if regarding is not None and not error.conflict:
                self.warn(regarding, events.not_deleted(metadata.name, _reason(error)), error)
            raise
        if regarding is not None and (change or not metadata.terminating):
            body = events.lost(metadata.name) if lost else events.deleted(metadata.name)
            self._recorder.emit(regarding, body, metadata.uid)

    def add_owners(self, domain: ComputeDomain, owners: Sequence[Owner]) -> None:
        """Add owner references to a ComputeDomain.

        Raises:
            ApiError: the owner references were not added.
        """
        self._patch(domain.metadata, objects.with_owners(domain.metadata, owners))

    def whole(self, domain: ComputeDomain) -> ComputeDomain:
        """Return the whole ComputeDomain, read again if the watch holds only a reduced copy.

        Raises:
            Retry: the domain has changed since it was observed.
            ApiError: the API server did not answer.
        """
        metadata = domain.metadata
        if not metadata.oversized:
            return domain
        found = live_object(self._api, COMPUTEDOMAINS, metadata.namespace, metadata.name)
        if found is None or found.metadata.resource_version != metadata.resource_version:
            raise Retry(f"ComputeDomain {metadata.namespace}/{metadata.name} has changed meanwhile")
        return found

    def emit(self, regarding: Regarding, body: EventBody, occasion: str) -> None:
        """Send an Event about a lasting state, once for each occasion."""
        key = (regarding.uid, body.reason, occasion)
        if self._emitted.get(key) is None:
            self._emitted.put(key, body.reason)
            self._recorder.emit(regarding, body, occasion)

    def warn(self, regarding: Regarding, body: EventBody, error: Exception) -> None:
        """Send an Event about a failure, at most once an hour for the same text."""
        away = isinstance(error, ApiError) and error.status == NO_RESPONSE
        if not away and self._warnings.spend(regarding.uid):
            self._recorder.emit(regarding, body, f"{datetime.now(UTC):%Y-%m-%dT%H}")

    def _create(self, desired: DesiredDomain) -> ComputeDomain | None:
        """Return the new domain, None if it exists already."""
        for name in desired.names:
            if self._is_in_use(desired, name):
                continue
            try:
                return self._api.create(COMPUTEDOMAINS, desired.manifest(name, timestamp()))
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
            # The watch lags behind this or another leader's write.
            found = live_object(self._api, COMPUTEDOMAINS, desired.workload.namespace, name)
            if found is None:
                raise Retry(f"ComputeDomain {desired.workload.namespace}/{name} went meanwhile")
            if self._is_former(desired, found):
                continue
            if desired.is_met_by(found):
                return None
        raise NamesInUse(
            f"other ComputeDomains or ResourceClaimTemplates of namespace {desired.workload.namespace} have the name "
            f"{' and '.join(desired.names)}; delete or rename them"
        )

    def _is_in_use(self, desired: DesiredDomain, name: str) -> bool:
        """Return whether a name belongs to another domain, or to a claim template that NVIDIA's controller cannot make.

        A template that NVIDIA's controller made for a domain that is gone goes, too.
        """
        namespace = desired.workload.namespace
        holders = [domain for domain in (self._watcher.domains.get(name, namespace),) if domain is not None]
        holders += self._watcher.domains_with_template(namespace, name)
        if any(self._is_former(desired, holder) for holder in holders):
            return True
        template = self._watcher.templates.get(name, namespace)
        foreign = template is not None and not template.metadata.label(NODE_LABEL)
        return foreign or not all(map(desired.is_met_by, holders))

    def _is_former(self, desired: DesiredDomain, holder: ComputeDomain) -> bool:
        """Return whether a former domain of the same workload has a name, and pods on dead nodes hold it.

        Raises:
            Retry: the former domain goes soon: it is released, or already going.
        """
        if (
            not holder.written_by_gkm
            or objects.workload_of(holder) != desired.workload
            or not (holder.metadata.terminating or not desired.is_met_by(holder))
        ):
            return False
        if len(desired.names) > 1 and objects.is_released(holder) and self._is_abandoned(holder):
            return True
        raise Retry(f"a former ComputeDomain {holder.metadata.name} is not gone yet")

    def _delete(self, metadata: MnnvlMetadata) -> None:
        try:
            self._api.delete(
                COMPUTEDOMAINS,
                metadata.name,
                metadata.namespace,
                uid=metadata.uid,
                resource_version=metadata.resource_version,
            )
        except ApiError as error:
            if not error.not_found:
                raise

    def _patch(self, metadata: MnnvlMetadata, change: Json) -> ComputeDomain | None:
        """Return the domain afterwards, None if it is gone."""
        try:
            return self._api.merge(COMPUTEDOMAINS, metadata.name, {"metadata": change}, metadata.namespace)
        except ApiError as error:
            if not error.not_found:
                raise
            return None


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, ApiError) else str(error)
