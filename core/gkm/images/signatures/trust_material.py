"""Keys and trusted roots that policies name: read on first use, and again when a file changes. Thread-safe.

A replaced file (a changed ConfigMap or Secret) takes effect on the next call, so the removal of a key needs no restart.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gkm.api.policies import is_pem
from gkm.images.signatures import keys, trusted_root
from gkm.images.signatures.keys import PublicKey
from gkm.images.signatures.trusted_root import MAX_ROOT_BYTES, TrustedRoot

MAX_CACHED = 1024


@dataclass(frozen=True, eq=False, slots=True)
class TrustedRootFile:
    """A trusted root with the path of its file. Only the same object is equal, so caches can use it as a key."""

    path: str
    trusted: TrustedRoot


def key(key: str) -> PublicKey:
    """Return a configured key: PEM text, or the content of a PEM file.

    Raises:
        GKMError: SIGNATURE_INVALID.
    """
    return _key(key, None if is_pem(key) else stamp(key))


def root(path: str) -> TrustedRootFile:
    """Return the trusted root in a file.

    Raises:
        GKMError: SIGNATURE_INVALID.
    """
    return _root(path, stamp(path))


@lru_cache(MAX_CACHED)
def _key(key: str, _stamp: object) -> PublicKey:
    return keys.load(key)


@lru_cache(MAX_CACHED)
def _root(path: str, _stamp: object) -> TrustedRootFile:
    raw = keys.read_file(path, "trusted root", MAX_ROOT_BYTES)
    return TrustedRootFile(path, trusted_root.parse(raw, f"trusted root {path!r}"))


def stamp(path: str) -> object:
    """Return a value that changes when a file is replaced or written; None if the file is inaccessible."""
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
