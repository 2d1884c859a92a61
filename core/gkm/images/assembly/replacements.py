"""Files that an image gets with changed bytes: with secrets removed, or with paths rewritten for another directory."""

from dataclasses import replace
from pathlib import Path

from gkm.images.assembly.contents import CacheContents
from gkm.images.assembly.factors_file import redact
from gkm.images.assembly.tree import TreeEntry, walk


def replacement(contents: CacheContents, entry: TreeEntry) -> bytes | None:
    """Return the changed bytes that the image gets for a file; None if the file is packed as it is.

    Raises:
        GKMError: CONTENT_MISMATCH when the file changed while it was read.
        OSError: the file cannot be read.
    """
    if entry.directory:
        return None
    if (path := _rewritten(contents, entry)) is not None:
        return path.read_bytes()
    without_secrets = redact(entry)
    return without_secrets.data if without_secrets else None


def with_rewritten(contents: CacheContents, directory: Path) -> CacheContents:
    """Return contents whose image gets the files below `directory` instead of the files at the same paths.

    The directory must exist until the image is packed.

    Raises:
        GKMError: as `walk` raises.
        OSError: a file cannot be read.
    """
    contents = replace(contents, rewritten=directory)
    size = contents.size_bytes
    for entry in walk(contents.directory, contents.selection):
        if (path := _rewritten(contents, entry)) is not None:
            size += path.stat().st_size - entry.size
    labels = {**contents.labels, contents.format.size_label: str(size)}
    return replace(contents, size_bytes=size, labels=labels)


def _rewritten(contents: CacheContents, entry: TreeEntry) -> Path | None:
    path = contents.rewritten / entry.path if contents.rewritten else None
    return path if path is not None and not entry.directory and path.is_file() else None
