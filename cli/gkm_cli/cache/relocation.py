"""Rewrite the files of an extracted cache that name absolute paths, for the path where a program sees them."""

import os
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.hoststate.files import closing
from gkm.mounts.relocation import tree_writer
from gkm.mounts.relocation.mount_path import MountPath
from gkm.mounts.relocation.tree_writer import RewriteCounts, Unrelocatable


def relocate(content: Path, tree: Path, path: MountPath, mode: int = 0o644) -> RewriteCounts:
    """Replace the files that name paths by files for `path` with this mode.

    They are first written to the new directory `tree` on the same disk.
    A replaced file is another one: hard links to the old one stay as they are.

    Raises:
        GKMError: UNSAFE_CONTENT: the content is not that of a cache.
        OSError: the disk refused.
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
