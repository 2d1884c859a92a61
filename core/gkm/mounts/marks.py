"""Which mounts are ours: the device of an overlay is free text, and ours says who it is for and what it shows."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from gkm.mounts.mountinfo import Mount

_MARK = re.compile(r"gkm:(?P<owner>[A-Za-z0-9_.-]{1,128})@(?P<content>[a-z0-9]+:[0-9a-f]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Mark:
    """`owner` is for whom something is mounted (one harmless word), `content` the digest of what is."""

    owner: str
    content: str

    def __str__(self) -> str:
        """Return the mark as it stands in mountinfo."""
        return f"gkm:{self.owner}@{self.content}"

    @classmethod
    def parse(cls, source: str) -> Self | None:
        """Return the mark that is the device `source`, None where it is no mark of ours."""
        match = _MARK.fullmatch(source)
        return cls(match["owner"], match["content"]) if match else None


@dataclass(frozen=True, slots=True)
class MarkedMount:
    """A mount of ours and where it is."""

    point: str
    mark: Mark


def mark_of(mount: Mount) -> Mark | None:
    """Return the mark of a mount that we made ourselves.

    A bind mount that somebody else made of a part of ours shows the same device, but kubelet's for a subPath has
    another root: it is kubelet's to take away.
    """
    return Mark.parse(mount.source) if mount.kind == "overlay" and mount.root == "/" else None


def marked_mounts(mounts: Iterable[Mount]) -> Iterator[MarkedMount]:
    """Yield those of `mounts` that are ours."""
    for mount in mounts:
        mark = mark_of(mount)
        if mark is not None:
            yield MarkedMount(mount.point, mark)
