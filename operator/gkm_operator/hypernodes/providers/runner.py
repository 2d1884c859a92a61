"""Runs one provider until it is to stop or fails, and writes its ProviderTree meanwhile.

Three threads: the provider's, which waits for the provider's sources and calls `start`; the caller's, which writes and
watches the clock; and at the end a thread that calls `stop`. A provider that fails ends the process: kubelet starts
another one, after a pause that grows. Must never write content of the source into a log.

Only this process writes the ProviderTree. A write is one merge patch, so that tree, counts and revision change together
or not at all. Its answer has the status of the controllers: no watch is needed.
"""

import logging
import math
import os
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event as Flag
from threading import Thread
from typing import Any

import msgspec
from gkm.api.crds import LABELS
from gkm.api.meta import API_VERSION
from gkm.api.provider_trees import MAX_SECONDS, ProviderTree, ProviderTreeSpec, ProviderTreeStatus
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.resources import PROVIDER_TREES
from gkm.topology.providers import Provider, ProviderFailed, ProviderStopped

from gkm_operator.hypernodes.providers.channel import ProviderChannel
from gkm_operator.hypernodes.providers.cluster_watch import ClusterSources
from gkm_operator.hypernodes.providers.view import LiveView

_LOG = logging.getLogger(__name__)


FIELD_MANAGER = "gkm.io/provider"


class TreeObject:
    """Reads and writes the ProviderTree of one provider. Only one thread may use it."""

    def __init__(self, api: Api, name: str) -> None:
        self._api = api
        self._name = name
        self._stored_tree: str | None = None

    def read(self) -> ProviderTreeSpec:
        """Return the spec that an earlier process wrote, an empty one if the object does not exist.

        Raises:
            ApiError: the API server does not respond, or the object cannot be read as a ProviderTree.
        """
        try:
            spec = self._api.get(PROVIDER_TREES, self._name).spec
        except ApiError as error:
            if error.not_found:
                return ProviderTreeSpec()
            raise
        self._stored_tree = spec.tree
        return spec

    def write(self, spec: ProviderTreeSpec) -> ProviderTreeStatus:
        """Write the fields of the spec that differ, or all fields of a new object; return the controllers' status.

        Raises:
            ApiError: the spec was not written.
        """
        fields = _fields(spec)
        changed = {key: value for key, value in fields.items() if key != "tree" or value != self._stored_tree}
        try:
            stored = self._api.merge(PROVIDER_TREES, self._name, {"spec": changed})
        except ApiError as error:
            if not error.not_found:
                raise
            stored = self._create(fields)
        # A person may have deleted and restored an older object meanwhile.
        self._stored_tree = stored.spec.tree
        return stored.status

    def _create(self, fields: Mapping[str, Any]) -> ProviderTree:
        value = {
            "apiVersion": API_VERSION,
            "kind": "ProviderTree",
            "metadata": {"name": self._name, "labels": dict(LABELS)},
            "spec": {key: value for key, value in fields.items() if value is not None},
        }
        return self._api.create(PROVIDER_TREES, value, field_manager=FIELD_MANAGER)


def _fields(spec: ProviderTreeSpec) -> Mapping[str, Any]:
    """Return all fields: a patch without one would leave its old value."""
    return {each.encode_name: getattr(spec, each.name) for each in msgspec.structs.fields(spec)}


FAILED = 1
LEAST_SECONDS = 2.0
"""Minimum seconds between two writes."""
HEARTBEAT_SECONDS = 30.0
"""Seconds between two writes of an unchanged tree; each write makes etcd store the whole object, 100 kB for 12,500
nodes."""
START_SECONDS = 300.0
"""Seconds that a provider may take from its start to its first event."""
STOP_SECONDS = 8.0
"""Seconds that a provider may take to stop; the kubelet kills it after 20 s."""
HANGS_SECONDS = 600.0
"""Seconds without progress after which a thread is considered hung, so that the kubelet restarts the pod."""
_LAST_WRITES, _LAST_PAUSE_SECONDS = 3, 0.5
_POLL_SECONDS, _SOURCES_SECONDS = 0.5, 5.0
_BACKOFF = Backoff(1.0, 30.0)


@dataclass(frozen=True, slots=True)
class RunnerPace:
    """The intervals and limits of a provider's runner in seconds; tests use shorter ones."""

    least: float = LEAST_SECONDS
    heartbeat: float = HEARTBEAT_SECONDS
    start: float = START_SECONDS
    stop: float = STOP_SECONDS
    poll: float = _POLL_SECONDS
    sources: float = _SOURCES_SECONDS


class ProviderRunner:
    """Runs one provider. `make` creates it; `stale` seconds without events end it, None for the provider's limit."""

    def __init__(
        self,
        name: str,
        make: Callable[[], Provider],
        *,
        tree: TreeObject,
        channel: ProviderChannel,
        view: LiveView,
        sources: ClusterSources,
        stale: float | None = None,
        pace: RunnerPace = RunnerPace(),
    ) -> None:
        self._name = name
        self._make = make
        self._tree = tree
        self._channel = channel
        self._view = view
        self._sources = sources
        self._stale = stale
        self._pace = pace
        self._provider: Provider | None = None
        self._failure = ""
        self._stopping = Flag()
        self._written_version = -1
        self._next_write = self._next_heartbeat = self._next_check = time.monotonic()
        self._write_failures = 0
        self._ticked_at = time.monotonic()
        self.has_written = False
        """Whether the object shows this process."""

    @property
    def is_alive(self) -> bool:
        """Return whether the thread that writes the ProviderTree is alive."""
        return time.monotonic() - self._ticked_at < HANGS_SECONDS

    def run(self, stop: Flag) -> int:
        """Run the provider until `stop` or its failure; return the exit code of the process.

        Threads of the provider may still run then.
        """
        try:
            return self._run(stop)
        finally:
            self._stopping.set()
            self._sources.close()

    def _run(self, stop: Flag) -> int:
        thread = Thread(target=self._live, name=self._name, daemon=True)
        thread.start()
        while not stop.is_set() and not self._failure:
            self._tick()
            self._channel.wait(self._channel.version, self._pace.poll)
        if self._failure:
            return self._end_failed(self._failure)
        self._stop_provider(thread)
        return self._end_failed(self._failure) if self._failure else 0

    def fail(self, error: BaseException | None) -> None:
        """End the process because the provider raised an exception; any thread of the provider may call this."""
        if isinstance(error, ProviderStopped) and self._stopping.is_set():
            return
        self._failure = self._failure or (
            str(error) if isinstance(error, ProviderFailed) else f"raised {_type_and_line(error)}"
        )

    def _live(self) -> None:
        """Call the provider's `start` when all is there that it reads."""
        try:
            while awaited := self._sources.check():
                self._channel.waits(awaited)
                if self._stopping.wait(self._pace.poll):
                    return
            self._channel.waits("")
            self._channel.heard_at = time.monotonic()
            provider = self._make()
            stale = float(getattr(provider, "stale_seconds", 0.0)) if self._stale is None else self._stale
            self._stale = max(stale, 0.0)
            self._channel.expects(min(math.ceil(self._stale), MAX_SECONDS))
            self._provider = provider
            provider.start(self._channel, self._channel, self._view)
        except BaseException as error:  # noqa: BLE001 -- every exception ends the process
            self.fail(error)

    def _tick(self) -> None:
        now = self._ticked_at = time.monotonic()
        if self._provider is not None:
            if now >= self._next_check:
                self._sources.check()
                self._next_check = now + self._pace.sources
            self._check_silence(now)
        is_due = self._channel.version != self._written_version or now >= self._next_heartbeat
        if is_due and now >= self._next_write:
            self._write(now)

    def _check_silence(self, now: float) -> None:
        limit = (self._stale or math.inf) if self._channel.serves else self._pace.start
        if now - self._channel.heard_at >= limit:
            what = "sent nothing for" if self._channel.serves else "sent no event within"
            self._failure = self._failure or f"{what} {limit:g} s"

    def _write(self, now: float) -> None:
        version, spec = self._channel.take()
        try:
            status = self._tree.write(spec)
        except ApiError as error:
            self._write_failures += 1
            pause = _BACKOFF.pause(self._write_failures, error.retry_after)
            self._next_write = now + pause
            _LOG.warning(
                "ProviderTree not written", extra=fields(provider=self._name, why=str(error), retry_seconds=pause)
            )
            return
        self._channel.answer(status)
        self._write_failures, self.has_written, self._written_version = 0, True, version
        self._next_write, self._next_heartbeat = now + self._pace.least, now + self._pace.heartbeat

    def _end_failed(self, reason: str) -> int:
        _LOG.error("topology provider failed, its process ends", extra=fields(provider=self._name, reason=reason))
        # First stop: an event after that would put Serving in the place of the reason.
        self._channel.stop()
        self._channel.fail(reason)
        self._write_last()
        return FAILED

    def _stop_provider(self, thread: Thread) -> None:
        self._stopping.set()
        self._channel.stop()
        self._view.stop()
        if (provider := self._provider) is not None:
            stopping = Thread(target=self._call_stop, args=(provider,), name="stop", daemon=True)
            stopping.start()
            stopping.join(self._pace.stop)
            if stopping.is_alive():
                self._failure = f"did not stop within {self._pace.stop:g} s"
        thread.join(self._pace.poll)
        if not self._failure:
            self._channel.waits("is stopped")
            self._write_last()

    def _call_stop(self, provider: Provider) -> None:
        try:
            provider.stop()
        except BaseException as error:  # noqa: BLE001 -- as in _live
            self.fail(error)

    def _write_last(self) -> None:
        """Write the end, so that a person reads it; a few times, for kubelet kills soon."""
        for _ in range(_LAST_WRITES):
            self._write(time.monotonic())
            if not self._write_failures:
                return
            time.sleep(_LAST_PAUSE_SECONDS)


def _type_and_line(error: BaseException | None) -> str:
    """Return the type of an exception and the line of code, never its message: that may hold content of the source."""
    frames = traceback.extract_tb(error.__traceback__) if error else []
    line = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""  # noqa: PTH119 -- a text
    return f"{type(error).__name__}{line}"
