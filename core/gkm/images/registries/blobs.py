"""A blob download: counts and hashes the received bytes, and resumes after an interruption."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gkm.images.local_image import StreamHasher, check_blob
from gkm.images.manifest import Descriptor


@dataclass(slots=True)
class BlobDownload:
    """The received part of a blob; the written bytes are valid only after `verify`."""

    descriptor: Descriptor
    write: Callable[[bytes], object]
    _hasher: StreamHasher = field(default_factory=StreamHasher)

    def resume(self, parts: Iterable[bytes]) -> None:
        """Add the bytes that an earlier download wrote; they are hashed like new ones."""
        self._hasher.read(parts)

    def receive(self, part: bytes) -> None:
        """Hash and write the next bytes."""
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
        """Check the size and the digest of the blob.

        Raises:
            GKMError: DIGEST_MISMATCH.
        """
        check_blob(self._hasher.descriptor(), self.descriptor, name)
