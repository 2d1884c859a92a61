"""A fingerprint of the files that policies name: it changes when the content of a file changes.

It covers the content, not times or inodes: when one file of a mounted ConfigMap changes, kubelet replaces the whole
directory by one symbolic link. An unreadable file has a fixed value in the fingerprint; verification reports the error.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from threading import Lock

from gkm.hoststate import files
from gkm.hoststate.files import UnreadableState
from gkm.images.signatures.trust_material import stamp


class Fingerprint:
    """The SHA-256 over `prefix` and the files at `paths`, read again when a file was replaced. Thread-safe."""

    def __init__(self, paths: Iterable[str], prefix: bytes = b"") -> None:
        self._paths = tuple(paths)
        self._prefix = prefix
        self._lock = Lock()
        # Read now, so that a change before the first call of `current` counts as a change.
        self._stamps = self._current_stamps()
        self._digest = self._read()

    def current(self) -> str:
        """Return the fingerprint of the present content, in hexadecimal."""
        with self._lock:
            # Take the stamps before the content: a change in between causes one more read.
            stamps = self._current_stamps()
            if stamps != self._stamps:
                self._digest = self._read()
                self._stamps = stamps
            return self._digest

    def _current_stamps(self) -> list[object]:
        return [stamp(path) for path in self._paths]

    def _read(self) -> str:
        hasher = hashlib.sha256(self._prefix)
        for path in self._paths:
            hasher.update(_content(path))
        return hasher.hexdigest()


def _content(path: str) -> bytes:
    try:
        return files.read_bounded(Path(path).resolve())
    except (OSError, UnreadableState, ValueError, RuntimeError):
        return b"unreadable"
