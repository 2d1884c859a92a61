"""The content of the files that policies name, as one value that changes with it.

By content, not by time or inode: kubelet puts a whole new directory in the place of a mounted ConfigMap, by one link,
when any file of it changes. What cannot be read is a content too, and verification says what is wrong.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from threading import Lock

from gkm.hoststate import files
from gkm.hoststate.files import UnreadableState
from gkm.images.signatures.trust_material import stamp


class Fingerprint:
    """The sha256 of `prefix` and of the files at `paths`; they are read again when one was replaced. Thread-safe."""

    def __init__(self, paths: Iterable[str], prefix: bytes = b"") -> None:
        self._paths = tuple(paths)
        self._prefix = prefix
        self._lock = Lock()
        # Read now: what changes before the first question is a change too.
        self._stamps = self._stamped()
        self._digest = self._read()

    def current(self) -> str:
        """Return the fingerprint of what the files hold now, in hexadecimal."""
        with self._lock:
            # Before they are read: what changes in between is read once more.
            stamps = self._stamped()
            if stamps != self._stamps:
                self._digest = self._read()
                self._stamps = stamps
            return self._digest

    def _stamped(self) -> list[object]:
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
