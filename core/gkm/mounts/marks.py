"""Recognize the mounts of this driver: the device of an overlay is free text, and ours holds owner and content."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from gkm.mounts.mountinfo import Mount

_MARK = re.compile(r"gkm:(?P<owner>[A-Za-z0-9_.-]{1,128})@(?P<content>[a-z0-9]+:[0-9a-f]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Mark:
    """`owner` is the volume of a mount (one harmless word), `content` the digest of its files."""

    owner: str
    content: str

    def __str__(self) -> str:
        """Return the mark as it appears in mountinfo."""
        return f"gkm:{self.owner}@{self.content}"

    @classmethod
    def parse(cls, source: str) -> Self | None:
        """Return the mark in the device `source`, None where it is not a mark."""
        match = _MARK.fullmatch(source)
        return cls(match["owner"], match["content"]) if match else None


@dataclass(frozen=True, slots=True)
class MarkedMount:
    """A mount of this driver and its mount point."""

    point: str
    mark: Mark


def mark_of(mount: Mount) -> Mark | None:
    """Return the mark of a mount that this driver made itself.

    A bind mount of a part of ours shows the same device, but kubelet's bind mount for a subPath has another root:
    kubelet unmounts it.
    """
    return Mark.parse(mount.source) if mount.kind == "overlay" and mount.root == "/" else None


def marked_mounts(mounts: Iterable[Mount]) -> Iterator[MarkedMount]:
    """Yield those of `mounts` that this driver made."""
    for mount in mounts:
        mark = mark_of(mount)
        if mark is not None:
            yield MarkedMount(mount.point, mark)
