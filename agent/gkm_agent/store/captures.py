"""The retention of captured files: additions of pods to their volumes, which the CSI process saved.

No registry has them, so a full disk is no reason to remove them. They have an age limit and a size limit of their own,
and the oldest go first.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gkm.api.config import Capture
from gkm.hoststate import files, names, trees
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import CAPTURED_FILE, Layout
from gkm.hoststate.logs import fields
from gkm.hoststate.names import InvalidName

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CapturedVolume:
    """The captured files of one volume: `since` in seconds since the epoch, `size` in bytes."""

    volume_id: str
    since: float
    size: int


def to_prune(captures: Iterable[CapturedVolume], bounds: Capture, now: float) -> list[str]:
    """Return the volumes beyond the age limit, and those beyond the size limit, counted from the newest. Pure."""
    total = 0
    pruned = []
    for capture in sorted(captures, key=lambda capture: (-capture.since, capture.volume_id)):
        total += capture.size
        if now - capture.since > bounds.retention or total > bounds.max_bytes:
            pruned.append(capture.volume_id)
    return pruned


def sweep(layout: Layout, bounds: Capture, now: float) -> None:
    """Remove the captures beyond the limits.

    Raises:
        OSError: the directory is unreadable, or a capture cannot be removed.
    """
    if not layout.captured.is_dir():
        return
    for volume_id in to_prune(_captures(layout.captured), bounds, now):
        trees.remove(layout.captured / volume_id)
        _LOG.info("captured files removed", extra=fields(volume=volume_id))


def _captures(directory: Path) -> list[CapturedVolume]:
    """Return the captures in a directory; skip unfinished ones and foreign files."""
    found = []
    for name in files.names_in(directory):
        path = directory / name
        try:
            size = files.read_object(path / CAPTURED_FILE).get("bytes")
            since = path.stat(follow_symlinks=False).st_mtime
            found.append(CapturedVolume(names.volume_id(name), since, size if isinstance(size, int) else 0))
        except (InvalidName, UnreadableState, OSError):
            continue
    return found
