"""Create and delete captured caches, and send the Events about them."""

from datetime import datetime, timedelta
from typing import Any

from gkm.api.captured_metadata import NAMESPACE
from gkm.api.errors import GKMError, Reason
from gkm.api.meta import API_VERSION
from gkm.kube.api import Api, ListSelector
from gkm.kube.errors import ApiError
from gkm.kube.events import EventBody, Recorder, Regarding
from gkm.kube.resources import CLUSTERGKMCACHES, GKMCACHES, Resource

from gkm_operator import metrics
from gkm_operator.caches.node_reports import NodeObject
from gkm_operator.caches.throttling import EventBudget
from gkm_operator.captures.objects import Announcement, CapturedCache, Generation, cache_object, captured_cache
from gkm_operator.captures.retention import RetentionVerdict

FIELD_MANAGER = "gkm-operator"
REGISTER, END = "Register", "End"
REGISTERED, NOT_REGISTERED, ENDED = "Registered", "NotRegistered", "Ended"
_RECENT = timedelta(minutes=2)


class CaptureWriter:
    """Creates and deletes the cache objects of captures; no other code does."""

    def __init__(self, api: Api, recorder: Recorder, registry: str) -> None:
        self._api = api
        self._registry = registry
        self._recorder = recorder
        self._event_budget = EventBudget()

    def registered(self, namespace: str, *, cluster: bool) -> list[CapturedCache]:
        """Read the cache objects of a namespace's captures from the API server, not from a watch.

        A watch may not have shown yet what this process, or the leader before it, created, and it does not hold which
        contents had a generation before.

        Raises:
            ApiError: the API server does not answer.
        """
        selector = ListSelector("" if cluster else namespace, f"{NAMESPACE}={namespace}")
        resource: Resource[Any] = CLUSTERGKMCACHES if cluster else GKMCACHES
        pages = self._api.list_pages(resource, selector)
        found = (captured_cache(entry.value, self._registry) for page in pages for entry in page.entries)
        return [each for each in found if each is not None]

    def register(self, announced: Announcement, generation: Generation | None = None, *, cluster: bool) -> None:
        """Create the cache object for a proven capture; `generation` is its number if it belongs to a family.

        Raises:
            GKMError: the API server, or a webhook, refuses the object.
            ApiError: an object of this name exists that the watch has not shown yet, or the API server does not answer.
        """
        try:
            self._api.create(_resource(cluster=cluster), cache_object(announced, generation, cluster=cluster))
        except ApiError as error:
            if error.definite and not (error.conflict or error.unavailable):
                raise GKMError(Reason.NOT_ALLOWED, f"the API server refuses the cache: {error.message}") from error
            raise
        metrics.CAPTURED_CACHES.labels("registered").inc()

    def emit_registered(self, cache: CapturedCache, now: datetime) -> None:
        """Send the Event about a new cache object. If the process dies before, the Event is lost."""
        if not cache.created or now - datetime.fromisoformat(cache.created) > _RECENT:
            return
        number = f"generation {cache.generation} of {cache.family}, " if cache.family else ""
        note = f"{number}captured from pods of {cache.namespace}, for {cache.hardware_key}: {cache.image}"
        self._emit(_regarding(cache), EventBody("Normal", REGISTERED, REGISTER, note), cache.created)

    def refused(self, announced_by: NodeObject | None, name: str, error: GKMError) -> None:
        """Send an Event about a refused capture on the node object that announces it; none without such an object."""
        metrics.CAPTURE_REFUSALS.labels(error.reason.value).inc()
        if announced_by is None:
            return
        meta = announced_by.metadata
        regarding = Regarding(API_VERSION, "GKMCacheNode", meta.name, meta.namespace, meta.uid)
        note = f"{name}: {error.reason.value}: {error}"
        self._emit(regarding, EventBody("Warning", NOT_REGISTERED, REGISTER, note), name)

    def end(self, verdict: RetentionVerdict) -> None:
        """Delete a captured cache; its image stays in the registry, whose retention policy removes it.

        Raises:
            ApiError: the object has changed since, or the API server does not answer.
        """
        cache = verdict.cache
        note = f"{verdict.reason}: {verdict.message}; its image stays in the registry"
        self._emit(_regarding(cache), EventBody("Normal", ENDED, END, note), cache.uid)
        try:
            self._api.delete(
                _resource(cluster=not cache.key.namespace),
                cache.key.name,
                cache.key.namespace or None,
                resource_version=cache.resource_version,
            )
        except ApiError as error:
            if not error.not_found:
                raise
        metrics.CAPTURED_CACHES.labels(verdict.reason.value).inc()

    def _emit(self, regarding: Regarding, body: EventBody, occasion: str) -> None:
        # Not by uid: a new object of the same name would have a new budget.
        if self._event_budget.spend(f"{regarding.kind}/{regarding.namespace}/{regarding.name}"):
            self._recorder.emit(regarding, body, occasion)


def _resource(*, cluster: bool) -> Resource[object]:
    found: Resource[object] = (CLUSTERGKMCACHES if cluster else GKMCACHES).of(object)
    return found


def _regarding(cache: CapturedCache) -> Regarding:
    kind = "GKMCache" if cache.key.namespace else "ClusterGKMCache"
    return Regarding(API_VERSION, kind, cache.key.name, cache.key.namespace, cache.uid)
