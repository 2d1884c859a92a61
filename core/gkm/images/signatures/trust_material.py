"""What policies name by path: keys and trusted roots, read when first needed and again when a file changes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar, cast

from gkm.api.policies import is_pem
from gkm.images.signatures import keys, trusted_root
from gkm.images.signatures.keys import PublicKey
from gkm.images.signatures.trusted_root import MAX_ROOT_BYTES, TrustedRoot

MAX_CACHED = 1024
T = TypeVar("T")


@dataclass(frozen=True)
class TrustedRootFile:
    """A trusted root, its file, and what others made of the file."""

    path: str
    trusted: TrustedRoot
    _cached: dict[Callable[[str], Any], Any] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def cached(self, make: Callable[[str], T]) -> T:
        """Return what `make` makes of the file, made once."""
        with self._lock:
            if make not in self._cached:
                self._cached[make] = make(self.path)
            return cast("T", self._cached[make])


class TrustMaterial:
    """Reads keys and trusted roots. Thread-safe.

    A file that was replaced (a ConfigMap or Secret that changed) counts from the next question on: who takes a key
    away must not have to restart anything.
    """

    def __init__(self) -> None:
        self._read: dict[tuple[str, object], PublicKey | TrustedRootFile] = {}
        self._lock = Lock()

    def key(self, key: str) -> PublicKey:
        """Return a configured key.

        Raises:
            GKMError: SIGNATURE_INVALID.
        """
        return self._cached(key, None if is_pem(key) else stamp(key), lambda: keys.load(key))

    def root(self, path: str) -> TrustedRootFile:
        """Return the trusted root in a file.

        Raises:
            GKMError: SIGNATURE_INVALID.
        """
        return self._cached(path, stamp(path), lambda: _root(path))

    def _cached(self, name: str, stamped: object, read: Callable[[], T]) -> T:
        with self._lock:
            known = self._read.get((name, stamped))
        if known is None:
            known = cast("PublicKey | TrustedRootFile", read())
            with self._lock:
                if len(self._read) >= MAX_CACHED:
                    self._read.clear()
                self._read[name, stamped] = known
        return cast("T", known)


def _root(path: str) -> TrustedRootFile:
    raw = keys.read_file(path, "trusted root", MAX_ROOT_BYTES)
    return TrustedRootFile(path, trusted_root.parse(raw, f"trusted root {path!r}"))


def stamp(path: str) -> object:
    """Return what changes when a file is replaced or written; None for one that cannot be looked at."""
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
