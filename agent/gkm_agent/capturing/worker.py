"""The thread that makes images from captures: one capture at a time, the oldest first, each failure with a backoff.

It shares the disk and the network with pulls and with the CSI driver, so it keeps disk space free and limits its upload
rate. Retries end when retention removes the capture. The agent publishes the captures of each namespace as one list,
the newest first.
"""

import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from threading import Lock, Thread
from typing import Final

from gkm.api.errors import GKMError, Reason
from gkm.api.nodes import MAX_CAPTURED_IMAGES, CapturedImage
from gkm.hoststate.escaping import escape
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff
from gkm.images.captured.content import Hardware, cache_name, member_name

from gkm_agent.capturing import progress
from gkm_agent.capturing.destination import CaptureStopped
from gkm_agent.capturing.family_base import family_of
from gkm_agent.capturing.progress import CaptureOrigin, CaptureState, Progress
from gkm_agent.capturing.steps import CaptureSteps, reason_of
from gkm_agent.store import captures
from gkm_agent.store.captures import MAX_CAPTURES, CapturedVolume, CapturesInUse
from gkm_agent.telemetry import metrics

_LOG = logging.getLogger(__name__)
PAUSE_SECONDS: Final = 10.0
POLL_SECONDS: Final = 1.0
"""Interval in seconds at which the thread checks for new captures of the CSI driver."""
BACKOFF: Final = Backoff(15.0, 1800.0)
"""Pauses in seconds after a failed step. A registry that is down for a day costs 50 attempts of one capture."""

LONGEST_SHARE_SECONDS: Final = 8.0
STEEPNESS: Final = 7.0
"""Steepness of the distribution of delays: with a larger value fewer nodes push early, and a single node waits
longer."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a capture waits: the reason and message of its last failed attempt, "" before the first attempt."""

    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class _Failure:
    count: int
    next_try: float
    waiting: Waiting


class CaptureWorker:
    """Makes images from the captures of a node, in its own thread. Without a configured registry it does nothing."""

    def __init__(
        self,
        steps: CaptureSteps,
        in_use: CapturesInUse,
        changed: Callable[[], object],
        *,
        node: str,
        clock: Callable[[], float] = time.monotonic,
        backoff: Backoff = BACKOFF,
    ) -> None:
        self._node = node
        self._layout = steps.layout
        self._settings = steps.settings
        self._steps = steps
        self._in_use = in_use
        self._changed = changed
        self._clock = clock
        self._backoff = backoff
        self._stop = steps.stop
        self._failures: dict[str, _Failure] = {}
        self._ended: set[str] = set()
        self._due: dict[str, float] = {}
        """When the share of this node in the pushes of a content begins, by capture."""
        self._lock = Lock()
        self._reports: Mapping[str, tuple[CapturedImage, ...]] = {}
        self._thread = Thread(target=self._run, name="captures", daemon=True)

    def start(self) -> None:
        """Start the thread if a registry for captures is configured.

        The reports are complete when this returns, unless the captures cannot be read: the thread logs it, and tries
        again.
        """
        if self._settings.is_pushed:
            metrics.expect_captures()
            with suppress(OSError):
                self._report()
            self._thread.start()

    def stop(self, timeout: float) -> None:
        """Stop the thread; an upload ends after its current piece.

        The next agent process repeats an interrupted step.
        """
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def reports(self) -> Mapping[str, tuple[CapturedImage, ...]]:
        """Return the reports about captures, by the namespace of the pods."""
        with self._lock:
            return self._reports

    def make_images(self) -> bool:
        """Run all steps that can run now for every capture; return whether no capture waits for another attempt."""
        volumes = self._volumes()
        self._failures = {name: self._failures[name] for name in volumes if name in self._failures}
        self._ended &= volumes.keys()
        self._due = {name: self._due[name] for name in volumes if name in self._due}
        self._begin_again()
        for volume_id in [name for name in volumes if name not in self._ended]:
            failure = self._failures.get(volume_id)
            if failure is None or failure.next_try <= self._clock():
                with self._in_use.use(volume_id):
                    self._advance(volume_id, volumes)
        self._report()
        return not self._failures

    def _begin_again(self) -> None:
        """Begin again with what ended and does not reach the next pod: another generation of its family does."""
        for volume_id in sorted(self._ended):
            with suppress(UnreadableState, OSError):  # it stays as it is, and the next round looks again
                if self._steps.begin_again(self._layout.capture(volume_id)):
                    self._ended.discard(volume_id)
                    self._due.pop(volume_id, None)
                    _LOG.info(
                        "capture is packed again, on top of the generation that this node now uses",
                        extra=fields(volume=volume_id),
                    )

    def _run(self) -> None:
        while not self._stop.is_set():
            before = self._changed_ns()
            try:
                self.make_images()
            except CaptureStopped:
                return
            except Exception:  # noqa: BLE001 -- a defect costs one round, not the thread
                _LOG.exception("pass over all captures failed, the next pass tries again")
            self._wait(before)

    def _wait(self, before: int) -> None:
        """Wait for a pause, or until a push is due or there are other captures than `before`."""
        end = min([self._clock() + PAUSE_SECONDS, *(due for due in self._due.values() if due > self._clock())])
        while self._clock() < end and self._changed_ns() == before:
            if self._stop.wait(POLL_SECONDS):
                return

    def _changed_ns(self) -> int:
        try:
            return self._layout.captured.lstat().st_mtime_ns
        except OSError:
            return 0

    def _volumes(self) -> dict[str, CapturedVolume]:
        """Return the captures of this node, the oldest first."""
        if not self._layout.captured.is_dir():
            return {}
        volumes = captures.captured_volumes(self._layout.captured)
        # Not through a link: the CSI process made a directory, and no other process may write there.
        own = [volume for volume in volumes if not self._layout.capture(volume.volume_id).is_symlink()]
        own.sort(key=lambda volume: (volume.since, volume.volume_id))
        return {volume.volume_id: volume for volume in own[:MAX_CAPTURES]}

    def _advance(self, volume_id: str, volumes: Mapping[str, CapturedVolume]) -> None:
        directory = self._layout.capture(volume_id)
        if not directory.exists():  # removed by retention
            return
        others = [self._layout.capture(other) for other in volumes]
        try:
            before = progress.load(directory)
            while not before.state.is_final:
                if before.state is CaptureState.PACKED and not self._may_push(volume_id, before):
                    return
                before = self._steps.advance(directory, others)
                self._failures.pop(volume_id, None)
                self._log_state(volume_id, before)
            self._steps.remove_leftovers(directory)
            self._failures.pop(volume_id, None)
            self._ended.add(volume_id)
        except GKMError as error:
            self._record_failure(volume_id, error.reason, str(error), error.detail)
        except UnreadableState as error:
            self._record_failure(volume_id, Reason.NODE_ERROR, str(error))
        except OSError as error:
            self._record_failure(volume_id, reason_of(error), f"the disk of the node: {error.strerror}", str(error))
        except CaptureStopped:
            raise
        except Exception as error:  # noqa: BLE001 -- a defect costs one attempt
            _LOG.exception(
                "attempt to pack and push a capture failed because of a defect", extra=fields(volume=volume_id)
            )
            self._record_failure(volume_id, Reason.NODE_ERROR, type(error).__name__)

    def _may_push(self, volume_id: str, packed: Progress) -> bool:
        """Return whether this node has waited for its share: other nodes may have the same content at this moment."""
        share = upload_share(packed.content_digest, self._node) if self._node else 0.0
        return self._clock() >= self._due.setdefault(volume_id, self._clock() + share)

    def _log_state(self, volume_id: str, reached: Progress) -> None:
        state = reached.state
        if state.is_final:
            metrics.CAPTURES.labels(state.value).inc()
        if state is CaptureState.ANNOUNCED:
            metrics.succeeded("capture")
        _LOG.log(
            logging.WARNING if state is CaptureState.REFUSED else logging.INFO,
            "capture state changed",
            extra=fields(
                volume=volume_id,
                state=state.value,
                content=reached.content_digest or None,
                digest=reached.digest or None,
                reason=reached.reason or None,
                why=reached.message or None,
            ),
        )
        self._report()

    def _record_failure(self, volume_id: str, reason: Reason, message: str, detail: str = "") -> None:
        before = self._failures.get(volume_id)
        count = before.count + 1 if before else 1
        pause = self._backoff.pause(count)
        self._failures[volume_id] = _Failure(count, self._clock() + pause, Waiting(reason.value, message))
        metrics.count_capture_failure(reason.value)
        _LOG.warning(
            "attempt to pack and push a capture failed, retry scheduled",
            extra=fields(volume=volume_id, reason=reason.value, why=message, detail=detail or None, seconds=int(pause)),
        )

    def _report(self) -> None:
        """Read how far the captures have come, and let the loop publish it where it changed."""
        known = []
        for volume in self._volumes().values():
            directory = self._layout.capture(volume.volume_id)
            try:
                origin = progress.origin(directory)
            except UnreadableState:
                continue
            failure = self._failures.get(volume.volume_id)
            waiting = failure.waiting if failure else Waiting()
            family = family_of(origin, self._settings.caches)
            name = family.name if family else ""
            known.append(KnownCapture(origin, progress.load(directory), volume.since, waiting, name))
        found = by_namespace(known)
        with self._lock:
            unchanged = found == self._reports
            self._reports = found
        if not unchanged:
            self._changed()


@dataclass(frozen=True, slots=True)
class KnownCapture:
    """A capture of this node; `since` is the time at which its copy ended, in seconds since the epoch.

    `family` is its cache family, "" if absent.
    """

    origin: CaptureOrigin
    progress: Progress
    since: float
    waiting: Waiting = Waiting()
    family: str = ""


def by_namespace(captures: Iterable[KnownCapture]) -> Mapping[str, tuple[CapturedImage, ...]]:
    """Return the reports about captures, by the namespace of the pod.

    A namespace has at most MAX_CAPTURED_IMAGES reports. Beyond that, the oldest captures have no report.
    """
    found: dict[str, list[CapturedImage]] = {}
    for capture in sorted(captures, key=lambda each: (-each.since, each.origin.volume_id)):
        listed = found.setdefault(capture.origin.pod_namespace, [])
        if len(listed) < MAX_CAPTURED_IMAGES:
            listed.append(_report(capture))
    return {namespace: tuple(listed) for namespace, listed in sorted(found.items())}


def _report(capture: KnownCapture) -> CapturedImage:
    origin, progress = capture.origin, capture.progress
    hardware, final = progress.hardware, progress.state.is_final
    announced = progress.state is CaptureState.ANNOUNCED and hardware is not None
    return CapturedImage(
        volume=origin.volume_id,
        state=progress.state.value if final else "Waiting",
        pod=escape(origin.pod_name)[:253],
        time=_time(origin.start_time),
        name=_name(capture.family, hardware, progress) if announced and hardware else "",
        image=f"{progress.repository}@{progress.digest}" if announced else "",
        runtime=hardware.runtime if hardware else "",
        version=hardware.version if hardware else "",
        backend=hardware.backend if hardware else "",
        arch=hardware.arch if hardware else "",
        driver=hardware.driver if hardware else "",
        content_digest=progress.content_digest or None,
        family=capture.family,
        base=progress.base_digest or None,
        files=progress.files,
        size_bytes=progress.size_bytes,
        reason=progress.reason if final else capture.waiting.reason,
        message=escape(progress.message if final else capture.waiting.message)[:1024],
    )


def _name(family: str, hardware: Hardware, progress: Progress) -> str:
    if family:
        return member_name(family, hardware.arch, progress.content_digest)
    return cache_name(hardware.runtime, hardware.arch, progress.content_digest)


def _time(text: str) -> str | None:
    """Return a time of the CSI process; None for any other text, because the API would refuse the whole status."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return None
    return text


def upload_share(content_digest: str, node: str) -> float:
    """Return the delay in seconds before this node pushes content with this digest.

    Many nodes with a new kind of GPU compile the same files at the same time. The delay follows from hash(content,
    node): no lease, and no node knows of another. Most wait long and a few are early, as receivers of a multicast delay
    their answers (Nonnenmacher and Biersack, "Optimal Multicast Feedback", 1998): the number of early ones hardly
    depends on the number of nodes. A later node finds the blobs in the registry and sends no blobs.
    """
    digest = hashlib.sha256(f"{content_digest}\n{node}".encode()).digest()
    drawn = int.from_bytes(digest[:8], "big") / 2**64
    return LONGEST_SHARE_SECONDS * math.log1p(drawn * math.expm1(STEEPNESS)) / STEEPNESS
