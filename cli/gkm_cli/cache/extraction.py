"""Extract an image into a directory: first beside it, then by one rename; a progress bar shows the stages.

Files that name absolute paths are rewritten for the path where a program sees them.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.hoststate import trees
from gkm.hoststate.files import closing
from gkm.hoststate.layout import Layout
from gkm.images.cache import CacheImage
from gkm.images.image_store import ImageSource
from gkm.images.pulling import entry, pull
from gkm.images.pulling.extract import Extraction
from gkm.images.pulling.pull import PullStage
from gkm.mounts.relocation import tree_writer
from gkm.mounts.relocation.mount_path import MountPath
from gkm.mounts.relocation.tree_writer import RewriteCounts, Unrelocatable

from gkm_cli import disks
from gkm_cli.progress import progress_bars


def extract(
    registry: ImageSource, image: CacheImage, to: Path, max_bytes: int, path: MountPath | None
) -> tuple[Extraction, RewriteCounts]:
    """Extract an image's content into the new directory `to`, for use at `path`; after a failure, `to` does not exist.

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


def relocate(content: Path, tree: Path, path: MountPath, mode: int = 0o644) -> RewriteCounts:
    """Replace the files of a cache that name paths by files for `path`, with this mode.

    They are first written to the new directory `tree` on the same disk. A replaced file is another one: hard links to
    the old one stay as they are.

    Raises:
        GKMError: UNSAFE_CONTENT: the content is no cache.
        OSError: a disk operation failed.
    """
    with closing(os.open(content, os.O_RDONLY | os.O_DIRECTORY)) as descriptor:
        try:
            counts = tree_writer.write(descriptor, tree, path)
        except Unrelocatable as error:
            raise GKMError(Reason.UNSAFE_CONTENT, f"the paths in the cache cannot be rewritten: {error}") from error
    for rewritten in tree.rglob("*"):
        if rewritten.is_file():
            rewritten.chmod(mode)
            rewritten.replace(content / rewritten.relative_to(tree))
    return counts
