"""A blob on its way: counted and hashed as it comes, and able to go on where it was interrupted."""

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
    """What has come of a blob so far; what was written counts only once `check` has passed."""

    descriptor: Descriptor
    write: Callable[[bytes], object]
    received: int = 0
    _hash: "_Hash" = field(default_factory=hashlib.sha256)

    def resume(self, parts: Iterable[bytes]) -> None:
        """Take what an earlier process had written already; it is hashed like the rest."""
        for part in parts:
            self._hash.update(part)
            self.received += len(part)

    def receive(self, part: bytes) -> None:
        """Take the next bytes."""
        self._hash.update(part)
        self.received += len(part)
        self.write(part)

    @property
    def missing(self) -> int:
        """Return how many bytes are still to come."""
        return self.descriptor.size - self.received

    def verify(self, name: str) -> None:
        """Accept the blob.

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
    """Return the error for a blob that is not what its manifest says."""
    return GKMError(Reason.DIGEST_MISMATCH, f"blob {descriptor.digest} of {name} is {what}")
