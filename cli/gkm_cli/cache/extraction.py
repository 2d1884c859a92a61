"""Extract an image into a directory: first beside it, then by one rename; a progress bar shows the stages."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from gkm.hoststate import trees
from gkm.hoststate.layout import Layout
from gkm.images.cache import CacheImage
from gkm.images.pulling import entry, pull
from gkm.images.pulling.extract import Extraction
from gkm.images.pulling.pull import PullStage
from gkm.images.registries.registry import Registry
from gkm.mounts.relocation.mount_path import MountPath
from gkm.mounts.relocation.tree_writer import RewriteCounts

from gkm_cli import disks
from gkm_cli.cache.relocation import relocate
from gkm_cli.progress import progress_bars


def extract(
    registry: Registry, image: CacheImage, to: Path, max_bytes: int, path: MountPath | None
) -> tuple[Extraction, RewriteCounts]:
    """Extract the content into the new directory `to`, for use at `path`; after a failure, `to` does not exist.

    Raises:
        GKMError: as gkm.images.pulling.pull, DISK_FULL.
        OSError: writing failed.
    """
    to.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{to.name}-", dir=to.parent))
    total = image.download_bytes
    need = image.download_bytes + (image.size_bytes or 0)
    try:
        with disks.filling(to.parent, lambda: need), progress_bars(*(stage.value for stage in PullStage)) as report:
            extraction = pull.extract(
                registry,
                image,
                Layout(work / "state", work / "run"),
                work,
                max_bytes=max_bytes,
                progress=lambda stage, percent: report(stage.value, percent * total // 100, total),
            )
        content = work / entry.CONTENT
        _make_writable(content)
        with disks.filling(to.parent, lambda: need):
            counts = relocate(content, work / "relocated", path) if path else RewriteCounts(0, 0)
        content.rename(to)
        return extraction, counts
    finally:
        with suppress(OSError):
            trees.remove(work)


def _make_writable(directory: Path) -> None:
    """Set the usual modes of a user's files: this is a copy, not the store."""
    directory.chmod(directory.stat().st_mode | 0o755)
    with os.scandir(directory) as entries:
        for file in entries:
            path = Path(file.path)
            if file.is_dir(follow_symlinks=False):
                _make_writable(path)
            else:
                path.chmod(file.stat().st_mode | 0o644)
