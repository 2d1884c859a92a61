"""The path at which a container mounts a cache, from a volume attribute; only this module validates it."""

import hashlib
import posixpath
from dataclasses import dataclass
from typing import Final

MAX_BYTES: Final = 1024
"""Limit of bytes, so that paths of the cache below it (1024 bytes) stay within PATH_MAX (4096)."""
_MAX_EXCERPT: Final = 80


class InvalidMountPath(ValueError):
    """No cache can be relocated to this path; the message is one line that a person can act on."""


@dataclass(frozen=True, slots=True)
class MountPath:
    """The path of a cache in a container: absolute, normalized, printable, and not the root."""

    text: str

    def __post_init__(self) -> None:
        if problem := _problem(self.text):
            excerpt = self.text if len(self.text) <= _MAX_EXCERPT else self.text[:_MAX_EXCERPT] + "…"
            raise InvalidMountPath(f"mountPath {excerpt!a} {problem}")

    @property
    def key(self) -> str:
        """Return a directory name for this path, equal on every node and in every version."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def _problem(text: str) -> str:
    # Checked first: unprintable text may have no encoding (lone surrogates).
    if not text.isprintable():
        return "has characters that cannot be printed"
    if len(text.encode()) > MAX_BYTES:
        return f"is longer than {MAX_BYTES} bytes"
    if not text.startswith("/") or text.startswith("//"):
        return "is not an absolute path: write it as in the container's volumeMounts"
    if text == "/":
        return "is the root of the container, where no volume can be mounted"
    if (normal := posixpath.normpath(text)) != text:
        return f"is not in its shortest form: write {normal[:_MAX_EXCERPT]!a}"
    return ""
