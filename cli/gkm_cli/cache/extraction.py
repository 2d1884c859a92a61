"""Content into a directory that a person named: beside it first, then one rename; a bar shows how far it is."""

import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.hoststate import trees
from gkm.hoststate.layout import Layout
from gkm.images.cache import CacheImage
from gkm.images.pulling import entry, pull
from gkm.images.pulling.pull import PullStage
from gkm.images.registries.registry import Registry
from gkm.mounts.relocation import tree_writer as relocation_tree
from gkm.mounts.relocation.mount_path import MountPath
from gkm.mounts.relocation.tree_writer import RewriteCounts, Unrelocatable

from gkm_cli import disks
from gkm_cli.progress import progress_bars


@dataclass(frozen=True)
class ExtractedCache:
    """What lies in the directory now: `rewritten` files name paths, `incomplete` of them files that are not there.

    `manifest` is what the image says of its entries.
    """

    files: int
    size_bytes: int
    rewritten: int
    incomplete: int
    manifest: bytes


def extract(registry: Registry, image: CacheImage, to: Path, max_bytes: int, path: MountPath | None) -> ExtractedCache:
    """Put the content into the new directory `to`, to be seen at `path`; on any failure it is not there.

    Raises:
        GKMError: as gkm.images.pulling.pull, DISK_FULL.
        OSError: the disk refused.
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
        _open(content)
        with disks.filling(to.parent, lambda: need):
            counts = _relocate(content, work / "relocated", path) if path else RewriteCounts(0, 0)
        content.rename(to)
        return ExtractedCache(
            len(extraction.files), extraction.size_bytes, counts.rewritten, counts.incomplete, extraction.manifest
        )
    finally:
        with suppress(OSError):
            trees.remove(work)


def _open(directory: Path) -> None:
    """Give the files a person's usual modes: this is a copy, not the store."""
    directory.chmod(directory.stat().st_mode | 0o755)
    with os.scandir(directory) as found:
        for one in found:
            path = Path(one.path)
            if one.is_dir(follow_symlinks=False):
                _open(path)
            else:
                path.chmod(one.stat().st_mode | 0o644)


def _relocate(content: Path, tree: Path, path: MountPath) -> RewriteCounts:
    """Put the files that name paths, rewritten, in the place of the original ones."""
    descriptor = os.open(content, os.O_RDONLY | os.O_DIRECTORY)
    try:
        counts = relocation_tree.write(descriptor, tree, path)
    except Unrelocatable as error:
        raise GKMError(Reason.UNSAFE_CONTENT, f"the paths in the cache cannot be rewritten: {error}") from error
    finally:
        os.close(descriptor)
    for rewritten in tree.rglob("*"):
        if rewritten.is_file():
            rewritten.chmod(0o644)
            rewritten.replace(content / rewritten.relative_to(tree))
    return counts
