"""A stream that is hashed on its way."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import _Hash


@dataclass(slots=True)
class StreamHasher:
    """Hashes what passes `through`, and counts it."""

    size: int = 0
    _hash: "_Hash" = field(default_factory=hashlib.sha256)

    def through(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        """Yield what comes."""
        for part in parts:
            self._hash.update(part)
            self.size += len(part)
            yield part

    @property
    def digest(self) -> str:
        """Return the digest of what has come so far."""
        return f"sha256:{self._hash.hexdigest()}"
