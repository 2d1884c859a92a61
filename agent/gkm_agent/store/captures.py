"""What pods added to their volumes and the CSI process kept: it stays for a time, and within a size, oldest first out.

Nobody can fetch it again, so a short disk is no reason to remove it; the bounds are what it may ever cost.
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
    """One volume's: `since` in seconds since the epoch, `size` in bytes."""

    volume_id: str
    since: float
    size: int


def to_prune(kept: Iterable[CapturedVolume], bounds: Capture, now: float) -> list[str]:
    """Return which volumes' are too old, or too much together with all that is newer. Pure."""
    total = 0
    gone = []
    for one in sorted(kept, key=lambda one: (-one.since, one.volume_id)):
        total += one.size
        if now - one.since > bounds.retention or total > bounds.max_bytes:
            gone.append(one.volume_id)
    return gone


def sweep(layout: Layout, bounds: Capture, now: float) -> None:
    """Remove what is beyond the bounds.

    Raises:
        OSError: the directory cannot be read, or something in it not be removed.
    """
    if not layout.captured.is_dir():
        return
    for volume_id in to_prune(_captures(layout.captured), bounds, now):
        trees.remove(layout.captured / volume_id)
        _LOG.info("captured files removed", extra=fields(volume=volume_id))


def _captures(directory: Path) -> list[CapturedVolume]:
    """Return what lies there; what the CSI process has not finished, and what is not ours, is passed over."""
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
