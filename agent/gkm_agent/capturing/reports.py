"""What the agent announces of captures: one list for each namespace, the newest first. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from gkm.api.nodes import MAX_CAPTURED_IMAGES, CapturedImage
from gkm.hoststate.escaping import escape
from gkm.images.captured.content import cache_name

from gkm_agent.capturing.progress import CaptureOrigin, CaptureState, Progress

_SHOWN = {
    CaptureState.ANNOUNCED: "Announced",
    CaptureState.DUPLICATE: "Duplicate",
    CaptureState.REFUSED: "Refused",
}


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a capture has not come further: the failure of its last attempt, "" before the first one."""

    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class KnownCapture:
    """A capture of this node; `since` in seconds since the epoch."""

    origin: CaptureOrigin
    progress: Progress
    since: float
    waiting: Waiting = Waiting()


def by_namespace(captures: Iterable[KnownCapture]) -> Mapping[str, tuple[CapturedImage, ...]]:
    """Return the reports of all captures: those of each namespace's pods, at most MAX_CAPTURED_IMAGES."""
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
        state=_SHOWN.get(progress.state, "Waiting"),
        pod=escape(origin.pod_name)[:253],
        time=_time(origin.start_time),
        name=cache_name(hardware.runtime, hardware.arch, progress.content_digest) if announced and hardware else "",
        image=f"{progress.repository}@{progress.digest}" if announced else "",
        runtime=hardware.runtime if hardware else "",
        version=hardware.version if hardware else "",
        backend=hardware.backend if hardware else "",
        arch=hardware.arch if hardware else "",
        driver=hardware.driver if hardware else "",
        content_digest=progress.content_digest or None,
        files=progress.files,
        size_bytes=progress.size_bytes,
        reason=progress.reason if final else capture.waiting.reason,
        message=escape(progress.message if final else capture.waiting.message)[:1024],
    )


def _time(text: str) -> str | None:
    """Return a time of the CSI process; None for any other text, because the API would refuse the whole status."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return None
    return text
