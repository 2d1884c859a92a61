"""A blob download: counts and hashes the received bytes, and resumes after an interruption."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gkm.api.errors import GKMError, Reason
from gkm.images.manifest import Descriptor

if TYPE_CHECKING:
    from hashlib import _Hash


@dataclass(slots=True)
class BlobDownload:
    """The received part of a blob; the written bytes are valid only after `verify`."""

    descriptor: Descriptor
    write: Callable[[bytes], object]
    received: int = 0
    _hash: "_Hash" = field(default_factory=hashlib.sha256)

    def resume(self, parts: Iterable[bytes]) -> None:
        """Add the bytes that an earlier download wrote; they are hashed like new ones."""
        for part in parts:
            self._hash.update(part)
            self.received += len(part)

    def receive(self, part: bytes) -> None:
        """Hash and write the next bytes."""
        self._hash.update(part)
        self.received += len(part)
        self.write(part)

    @property
    def missing(self) -> int:
        """Return the number of bytes still to receive."""
        return self.descriptor.size - self.received

    def verify(self, name: str) -> None:
        """Check the size and the digest of the blob.

        Raises:
            GKMError: DIGEST_MISMATCH.
        """
        if self.missing:
            raise wrong_blob(
                name, self.descriptor, f"{self.received} bytes long, its manifest says {self.descriptor.size}"
            )
        if f"sha256:{self._hash.hexdigest()}" != self.descriptor.digest:
            raise wrong_blob(name, self.descriptor, f"of digest sha256:{self._hash.hexdigest()}: it was changed")


def wrong_blob(name: str, descriptor: Descriptor, what: str) -> GKMError:
    """Return the error for a blob that differs from its manifest's description."""
    return GKMError(Reason.DIGEST_MISMATCH, f"blob {descriptor.digest} of {name} is {what}")
