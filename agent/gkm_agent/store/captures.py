"""The retention of captures: files that pods added to their volumes, and that the CSI driver copied.

No registry has these files, so a full disk is no reason to remove them. Limits of age and size apply to them alone, and
the oldest go first.
"""

import logging
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final

from gkm.api.config import Capture
from gkm.hoststate import files, names
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import CAPTURED_FILE, Layout
from gkm.hoststate.logs import fields
from gkm.hoststate.names import InvalidName

_LOG = logging.getLogger(__name__)

MAX_CAPTURES: Final = 1024
"""Limit of captures on a node; each takes memory in the agent while it waits for its image."""


@dataclass(frozen=True, slots=True)
class CapturedVolume:
    """The captured files of a volume: `since` is the end of their copy in seconds since the epoch, `size` in bytes."""

    volume_id: str
    since: float
    size: int


class CapturesInUse:
    """Protects the capture whose image is being made from removal by retention. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._current: str | None = None

    @contextmanager
    def use(self, volume_id: str) -> Iterator[None]:
        """Protect a capture from removal during the block."""
        with self._lock:
            self._current = volume_id
        try:
            yield
        finally:
            with self._lock:
                self._current = None

    def remove(self, layout: Layout, volume_id: str) -> bool:
        """Move a capture to the trash unless it is in use; return whether it was moved; raises OSError."""
        trash = layout.trash / f"captured-{volume_id}.{secrets.token_hex(4)}"
        with self._lock:
            if self._current == volume_id:
                return False
            layout.trash.mkdir(parents=True, exist_ok=True)
            # One rename: a use that begins now finds the whole capture or no capture.
            (layout.captured / volume_id).rename(trash)
        return True


def to_prune(captures: Iterable[CapturedVolume], bounds: Capture, now: float) -> list[str]:
    """Return the volumes whose captures exceed the limits of age, total size or number; the newest captures stay.

    Captures without content, such as records of failed copies, take the place of no other capture. Pure.
    """
    total = 0
    pruned = []
    ordered = sorted(captures, key=lambda capture: (capture.size <= 0, -capture.since, capture.volume_id))
    for number, capture in enumerate(ordered):
        total += capture.size
        too_large = capture.size > 0 and total > bounds.max_bytes
        if now - capture.since > bounds.retention or too_large or number >= MAX_CAPTURES:
            pruned.append(capture.volume_id)
    return pruned


def sweep(layout: Layout, bounds: Capture, now: float, in_use: CapturesInUse) -> None:
    """Remove the captures that exceed the limits; a capture in use is removed by a later sweep.

    Raises:
        OSError: the directory is unreadable, or a capture cannot be removed.
    """
    if not layout.captured.is_dir():
        return
    for volume_id in to_prune(captured_volumes(layout.captured), bounds, now):
        if in_use.remove(layout, volume_id):
            _LOG.info(
                "captured files of a volume removed, over the limit of age, size or number",
                extra=fields(volume=volume_id),
            )


def captured_volumes(directory: Path) -> list[CapturedVolume]:
    """Return the captures in a directory; skip unfinished ones and foreign files.

    Raises:
        OSError: the directory cannot be read.
    """
    found = []
    for name in files.names_in(directory):
        path = directory / name
        try:
            size = files.read_object(path / CAPTURED_FILE).get("bytes")
            # The time of the file, which stays as it is: the directory changes with each attempt to make an image.
            since = (path / CAPTURED_FILE).stat(follow_symlinks=False).st_mtime
            found.append(CapturedVolume(names.volume_id(name), since, size if isinstance(size, int) else 0))
        except (InvalidName, UnreadableState, OSError):
            continue
    return found
