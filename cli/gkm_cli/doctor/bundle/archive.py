"""A gzipped tar archive of small files, written in one step, readable by its owner only."""

import io
import tarfile
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from gkm.hoststate import files

_MODE = 0o600


class BundledFile(NamedTuple):
    """A file to add to the support bundle."""

    name: str
    content: bytes


def write(path: Path, directory: str, content: Iterable[BundledFile], made: datetime) -> None:
    """Write files into a new gzipped tar archive, below a directory name.

    Raises:
        OSError: the file cannot be written; an older one of this name stays.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for file in content:
            entry = tarfile.TarInfo(f"{directory}/{file.name}")
            entry.size, entry.mode, entry.mtime = len(file.content), _MODE, int(made.timestamp())
            archive.addfile(entry, io.BytesIO(file.content))
    files.replace(path, buffer.getvalue(), mode=_MODE)
