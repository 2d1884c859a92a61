"""An image that is ready to push: its manifest, and the bytes of each blob in memory or in a local file."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from gkm.api.errors import GKMError, Reason
from gkm.images.manifest import Descriptor

if TYPE_CHECKING:
    from hashlib import _Hash

PIECE_BYTES = 256 << 10
ProgressCallback = Callable[[int, int], object]
"""Called with the bytes done so far and the total bytes."""


class ByteCounter:
    """Adds up transferred bytes and reports each sum. Thread-safe; callbacks run one at a time."""

    def __init__(self, report: ProgressCallback, total: int) -> None:
        self._report, self._total, self.done = report, total, 0
        self._lock = Lock()

    def add(self, count: int) -> None:
        """Add `count` bytes (negative to subtract) and report the new sum; the callback may raise."""
        with self._lock:
            self.done += count
            self._report(self.done, self._total)

    def through(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the parts unchanged, and add the length of each part after the consumer has used it."""
        for part in parts:
            yield part
            self.add(len(part))


@dataclass(slots=True)
class StreamHasher:
    """Computes the digest and the size of a byte stream."""

    size: int = 0
    _hash: "_Hash" = field(default_factory=hashlib.sha256)

    def add(self, part: bytes) -> None:
        """Hash the next bytes, and add their number to the size."""
        self._hash.update(part)
        self.size += len(part)

    def through(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the parts unchanged, and hash each."""
        for part in parts:
            self.add(part)
            yield part

    def read(self, parts: Iterable[bytes]) -> None:
        """Hash all parts, and add their lengths to the size."""
        for part in parts:
            self.add(part)

    @property
    def digest(self) -> str:
        """Return the sha256 digest of the bytes hashed so far."""
        return f"sha256:{self._hash.hexdigest()}"

    def descriptor(self, media_type: str = "") -> Descriptor:
        """Return the descriptor of the bytes hashed so far."""
        return Descriptor(media_type, self.digest, self.size)


@dataclass(frozen=True, slots=True)
class LocalBlob:
    """A blob in memory, or a range of a file: `descriptor.size` bytes from `offset` on."""

    descriptor: Descriptor
    source: bytes | Path
    offset: int = 0

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str) -> "LocalBlob":
        """Return a blob in memory with these bytes."""
        return cls(Descriptor(media_type, f"sha256:{hashlib.sha256(data).hexdigest()}", len(data)), data)

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes of the blob in order.

        Raises:
            OSError: the file cannot be read, or ends too early.
        """
        if isinstance(self.source, bytes):
            for start in range(0, len(self.source), PIECE_BYTES):
                yield self.source[start : start + PIECE_BYTES]
            return
        yield from file_pieces(self.source, self.offset, self.descriptor.size)


def file_pieces(path: Path, offset: int, size: int) -> Iterator[bytes]:
    """Yield `size` bytes of a file from `offset` on. Does not follow a link: another file could replace a checked one.

    Raises:
        OSError: the file cannot be read, or ends too early.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        file.seek(offset)
        while size:
            piece = file.read(min(PIECE_BYTES, size))
            if not piece:
                raise OSError(f"{path} ends {size} bytes too early")
            size -= len(piece)
            yield piece


def write_blob(parts: Iterable[bytes], target: Path, media_type: str) -> LocalBlob:
    """Write `parts` to the new file `target` and return them as a blob.

    Raises:
        OSError: a disk operation failed, or the file exists.
    """
    hasher = StreamHasher()
    with target.open("xb") as file:
        file.writelines(hasher.through(parts))
    return LocalBlob(hasher.descriptor(media_type), target)


def check_blob(found: Descriptor, wanted: Descriptor, name: str) -> None:
    """Check that the size and digest of a blob's bytes are the wanted ones; errors name the image `name`.

    Raises:
        GKMError: DIGEST_MISMATCH.
    """
    if found.size != wanted.size:
        raise wrong_blob(name, wanted, f"{found.size} bytes long, its manifest says {wanted.size}")
    if found.digest != wanted.digest:
        raise wrong_blob(name, wanted, f"of digest {found.digest}: it was changed or is damaged")


def wrong_blob(name: str, wanted: Descriptor, what: str) -> GKMError:
    """Return the error for a blob that does not match its manifest."""
    return GKMError(Reason.DIGEST_MISMATCH, f"blob {wanted.digest} of {name} is {what}")


@dataclass(slots=True)
class BlobDownload:
    """A blob that is being downloaded; its bytes are verified only after `verify`."""

    descriptor: Descriptor
    write: Callable[[bytes], object]
    _hasher: StreamHasher = field(default_factory=StreamHasher)

    def resume(self, parts: Iterable[bytes]) -> None:
        """Add the bytes that an interrupted download left; they are hashed like new bytes."""
        self._hasher.read(parts)

    def receive(self, part: bytes) -> None:
        """Hash and write the next bytes of the blob."""
        self._hasher.add(part)
        self.write(part)

    @property
    def received(self) -> int:
        """Return the number of bytes that were received so far."""
        return self._hasher.size

    @property
    def missing(self) -> int:
        """Return the number of bytes still to receive."""
        return self.descriptor.size - self.received

    def verify(self, name: str) -> None:
        """Check the size and the digest of the received bytes; errors name the image `name`.

        Raises:
            GKMError: DIGEST_MISMATCH.
        """
        check_blob(self._hasher.descriptor(), self.descriptor, name)


def small_blob(descriptor: Descriptor, limit: int, receive: Callable[[BlobDownload], object]) -> bytes:
    """Return the bytes of a small blob, which `receive` downloads and verifies; TOO_LARGE beyond `limit` bytes."""
    if descriptor.size > limit:
        what = f"blob {descriptor.digest} has {descriptor.size} bytes, at most {limit} are read"
        raise GKMError(Reason.TOO_LARGE, what)
    parts: list[bytes] = []
    receive(BlobDownload(descriptor, parts.append))
    return b"".join(parts)


def write_all(descriptor: int, part: bytes | memoryview) -> None:
    """Write all bytes of `part` to a descriptor; raises OSError."""
    view = memoryview(part)
    while view:
        view = view[os.write(descriptor, view) :]


@dataclass(frozen=True, slots=True)
class LocalImage:
    """An image on disk: `blobs` are its configuration and its layers, `labels` the labels of the configuration."""

    manifest: bytes
    media_type: str
    blobs: tuple[LocalBlob, ...]
    labels: dict[str, str]

    @property
    def digest(self) -> str:
        """Return the digest of the image's manifest."""
        return f"sha256:{hashlib.sha256(self.manifest).hexdigest()}"
