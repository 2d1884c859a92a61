"""Send an Event about a watched object that is too large to keep in memory (gkm.kube.memory)."""

from contextlib import suppress
from typing import Any

from gkm.hoststate.pacing import TokenBucket
from gkm.kube.api import ObjectEntry
from gkm.kube.elector import NotLeading
from gkm.kube.events import EventBody, Recorder, Regarding
from gkm.kube.resources import Resource

REASON = "TooLarge"
BURST, PER_SECOND = 20, 1.0
"""Rate limit of these Events for a process: a user can create thousands of such objects. The log has all."""


class RefusalEvents:
    """A handler for `Reflector(on_refused=...)` that sends an Event about each object that is too large to keep."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._bucket = TokenBucket(BURST, 1 / PER_SECOND)

    def __call__(self, resource: Resource[Any], entry: ObjectEntry[Any], why: str) -> None:
        """Send the Event, once for each version of the object."""
        if not self._bucket.try_acquire():
            return
        uid = getattr(getattr(entry.value, "metadata", None), "uid", "")
        regarding = Regarding(resource.api_version, resource.kind, entry.name, entry.namespace, uid)
        note = f"GKM ignores this version of the object, which is too large: {why}; remove entries of this field"
        with suppress(NotLeading):  # the next leader reads the same object
            self._recorder.emit(regarding, EventBody("Warning", REASON, "Watch", note), entry.resource_version)
