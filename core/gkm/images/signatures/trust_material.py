"""Keys and trusted roots that policies name: read on first use, and again when a file changes."""

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
    """A trusted root with the path of its file, and a cache of objects that other modules build from the file."""

    path: str
    trusted: TrustedRoot
    _cached: dict[Callable[[str], Any], Any] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def cached(self, make: Callable[[str], T]) -> T:
        """Return the object that `make` builds from the path of the file; build it once."""
        with self._lock:
            if make not in self._cached:
                self._cached[make] = make(self.path)
            return cast("T", self._cached[make])


class TrustMaterial:
    """Reads keys and trusted roots and caches them. Thread-safe.

    A replaced file (a changed ConfigMap or Secret) takes effect on the next call, so the removal of a key needs no
    restart.
    """

    def __init__(self) -> None:
        self._read: dict[tuple[str, object], PublicKey | TrustedRootFile] = {}
        self._lock = Lock()

    def key(self, key: str) -> PublicKey:
        """Return a configured key: PEM text, or the content of a PEM file.

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
    """Return a value that changes when a file is replaced or written; None if the file is inaccessible."""
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
