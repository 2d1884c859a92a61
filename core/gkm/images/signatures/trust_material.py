"""Files that policies name, keys and trusted roots: read on first use, and again when a file changes. Thread-safe.

A replaced file (a changed ConfigMap or Secret) takes effect on the next call, so the removal of a key needs no restart.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gkm.api.policies import is_pem
from gkm.hoststate import files
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.lru import LRUCache
from gkm.images.signatures import keys, trusted_root
from gkm.images.signatures.keys import PublicKey
from gkm.images.signatures.trusted_root import MAX_ROOT_BYTES, TrustedRoot

MAX_CACHED = 1024
MAX_FINGERPRINTS = 8


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
    return _key(key, None if is_pem(key) else _cache_stamp(key))


def root(path: str) -> TrustedRootFile:
    """Return the trusted root in a file.

    Raises:
        GKMError: SIGNATURE_INVALID.
    """
    return _ROOTS.get_or_create((path, _cache_stamp(path)), lambda: _read_root(path))


@lru_cache(MAX_CACHED)
def _key(key: str, _stamp: object) -> PublicKey:
    return keys.load(key)


_ROOTS: LRUCache[tuple[str, object], TrustedRootFile] = LRUCache(MAX_CACHED)
"""One thread reads a root while others wait: each object has verifiers of its own."""


def _read_root(path: str) -> TrustedRootFile:
    raw = keys.read_file(path, "trusted root", MAX_ROOT_BYTES)
    return TrustedRootFile(path, trusted_root.parse(raw, f"trusted root {path!r}"))


def fingerprint(paths: Iterable[str], prefix: bytes = b"") -> str:
    """Return the SHA-256 over `prefix` and the content of files, in hexadecimal.

    It covers the content, not times or inodes: when one file of a mounted ConfigMap changes, kubelet replaces the whole
    directory by one symbolic link. An unreadable file has a fixed value; verification reports the error.
    """
    names = tuple(paths)
    # Take the stamps before the content: a change in between causes one more read.
    return _fingerprint(names, prefix, tuple(map(_cache_stamp, names)))


@lru_cache(MAX_FINGERPRINTS)
def _fingerprint(paths: tuple[str, ...], prefix: bytes, _stamps: tuple[object, ...]) -> str:
    hasher = hashlib.sha256(prefix)
    for path in paths:
        try:
            hasher.update(files.read_bounded(Path(path).resolve()))
        except (OSError, UnreadableState, ValueError, RuntimeError):
            hasher.update(b"unreadable")
    return hasher.hexdigest()


def stamp(path: str) -> object:
    """Return a value that changes when a file is replaced or written; None if the file is inaccessible."""
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _cache_stamp(path: str) -> object:
    """Return `stamp`; for an inaccessible file a value equal to no other, since it may appear before it is read."""
    return stamp(path) or object()
