"""Hash every extracted file in a thread beside the writing, from the same bytes."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gkm.images.pulling.file_list import ListedFile

MAX_BATCH = 1024
"""Parts in a batch. A handover between threads costs as much as hashing 30 kB, and most files are smaller."""


@dataclass(frozen=True, slots=True)
class FileEnd:
    """The end of a file, after its last piece."""

    path: str
    size: int
    executable: bool


FilePart = memoryview | FileEnd


def batches(parts: Iterable[FilePart]) -> Iterator[list[FilePart]]:
    """Yield the parts in their order, in batches of parts that come from one piece of the stream.

    A batch keeps only that piece alive in memory, even if few of its bytes belong to files.
    """
    batch: list[FilePart] = []
    piece: object = None
    for part in parts:
        if len(batch) >= MAX_BATCH or (isinstance(part, memoryview) and part.obj is not piece):
            yield batch
            batch = []
        if isinstance(part, memoryview):
            piece = part.obj
        batch.append(part)
    yield batch


def hash_files(written: Iterable[list[FilePart]]) -> Iterator[ListedFile]:
    """Yield each file as a line of the entry's file list."""
    hasher = hashlib.sha256()
    for batch in written:
        for part in batch:
            if isinstance(part, memoryview):
                hasher.update(part)
            else:
                yield ListedFile(part.path, part.size, hasher.hexdigest(), part.executable)
                hasher = hashlib.sha256()
