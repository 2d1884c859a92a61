"""An image that is ready to be stored: its manifest, and where the bytes of each blob lie on this machine."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gkm.images.manifest import Descriptor

PIECE_BYTES = 256 << 10
ProgressCallback = Callable[[int, int], object]
"""Told how many bytes are done, of how many."""


class Count:
    """Adds up bytes and reports them, of `total`."""

    def __init__(self, report: ProgressCallback, total: int) -> None:
        self._report, self._total, self._done = report, total, 0

    def add(self, count: int) -> None:
        """Report `count` more."""
        self._done += count
        self._report(self._done, self._total)


@dataclass(frozen=True, slots=True)
class LocalBlob:
    """A blob of `descriptor.size` bytes: in memory, or in a file from `offset` on (archives hold several)."""

    descriptor: Descriptor
    source: bytes | Path
    offset: int = 0

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str) -> "LocalBlob":
        """Return the blob of bytes in memory."""
        return cls(Descriptor(media_type, f"sha256:{hashlib.sha256(data).hexdigest()}", len(data)), data)

    def pieces(self) -> Iterator[bytes]:
        """Yield its bytes in order.

        Raises:
            OSError: the file cannot be read, or ends too early.
        """
        if isinstance(self.source, bytes):
            yield self.source
            return
        missing = self.descriptor.size
        # A link in the place of a file that was checked would be another file.
        descriptor = os.open(self.source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            file.seek(self.offset)
            while missing:
                piece = file.read(min(PIECE_BYTES, missing))
                if not piece:
                    raise OSError(f"{self.source} ends {missing} bytes before the blob {self.descriptor.digest} does")
                missing -= len(piece)
                yield piece


def counted(parts: Iterable[bytes], add: Callable[[int], object]) -> Iterator[bytes]:
    """Yield `parts`, and tell `add` the length of each that has been taken."""
    for part in parts:
        yield part
        add(len(part))


def write_blob(parts: Iterable[bytes], target: Path, media_type: str) -> LocalBlob:
    """Return the blob that `parts` are, written to the new file `target`.

    Raises:
        OSError: the disk refused, or there is such a file.
    """
    digest, size = hashlib.sha256(), 0
    with target.open("xb", buffering=0) as file:
        for part in parts:
            digest.update(part)
            size += len(part)
            write_all(file.fileno(), part)
    return LocalBlob(Descriptor(media_type, f"sha256:{digest.hexdigest()}", size), target)


def write_all(descriptor: int, part: bytes | memoryview) -> None:
    """Write all of `part`; raises OSError."""
    view = memoryview(part)
    while view:
        view = view[os.write(descriptor, view) :]


@dataclass(frozen=True, slots=True)
class LocalImage:
    """An image on disk: `blobs` are its configuration and its layers, `labels` those of the configuration."""

    manifest: bytes
    media_type: str
    blobs: tuple[LocalBlob, ...]
    labels: dict[str, str]

    @property
    def digest(self) -> str:
        """Return the digest of the manifest."""
        return f"sha256:{hashlib.sha256(self.manifest).hexdigest()}"
