"""Read the mounts of this process from /proc/self/mountinfo (proc_pid_mountinfo(5)), and recognize this driver's.

The device of an overlay and of a tmpfs is free text: ours holds the owner and the content of the mount.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

MAX_BYTES = 64 << 20
"""Limit of bytes of mountinfo. The kernel allows 100,000 mounts in a namespace (fs.mount-max)."""

_MOUNTINFO = Path("/proc/self/mountinfo")
_MARK = re.compile(r"gkm:(?P<owner>[A-Za-z0-9_.-]{1,128})@(?P<content>[a-z0-9]+:[0-9a-f]+)", re.ASCII)
_KINDS = frozenset({"overlay", "tmpfs"})
_OCTAL = re.compile(rb"\\([0-7]{3})")
_FIXED_FIELDS = 6
_TAIL_FIELDS = 2


class TooManyMounts(Exception):
    """mountinfo is larger than MAX_BYTES, so it cannot be read completely."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo: `point` is the mount point, `root` the mounted directory, `source` the device."""

    root: str
    point: str
    kind: str
    source: str


@dataclass(frozen=True, slots=True)
class Mark:
    """What GKM writes into the device name of a mount: the volume's id and the digest of its files."""

    owner: str
    content: str

    def __str__(self) -> str:
        """Return the mark as it appears in mountinfo."""
        return f"gkm:{self.owner}@{self.content}"

    @classmethod
    def parse(cls, source: str) -> Self | None:
        """Parse a device name; None if it is no mark of GKM."""
        match = _MARK.fullmatch(source)
        return cls(match["owner"], match["content"]) if match else None


@dataclass(frozen=True, slots=True)
class MarkedMount:
    """A mount that GKM made: its mount point, and the mark in its device name."""

    point: str
    mark: Mark


def read(path: Path = _MOUNTINFO) -> list[Mount]:
    """Return the mounts of this process's namespace, in the order of the kernel's list.

    Raises:
        OSError: /proc is missing.
        TooManyMounts: the file is larger than `MAX_BYTES`.
    """
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise TooManyMounts(f"{path} is larger than {MAX_BYTES} bytes")
    return list(parse(data.splitlines()))


def parse(lines: Iterable[bytes]) -> Iterator[Mount]:
    """Yield the mounts in `lines`; an invalid line is skipped.

    After six fixed fields come optional ones, then "-", then type, source and options. Space, tab, newline, backslash
    and "#" in a name are written as a backslash and three octal digits.
    """
    for line in lines:
        head, separator, tail = line.partition(b" - ")
        fixed, rest = head.split(b" "), tail.split(b" ")
        if not separator or len(fixed) < _FIXED_FIELDS or len(rest) < _TAIL_FIELDS:
            continue
        yield Mount(root=_text(fixed[3]), point=_text(fixed[4]), kind=_text(rest[0]), source=_text(rest[1]))


def mark_of(mount: Mount) -> Mark | None:
    """Return the mark in the device name of a mount that GKM made; None for other mounts and for bind mounts of parts.

    A bind mount of a part of ours shows the same device, but kubelet's bind mount for a subPath has another root:
    kubelet unmounts it.
    """
    return Mark.parse(mount.source) if mount.kind in _KINDS and mount.root == "/" else None


def marked_mounts(mounts: Iterable[Mount]) -> Iterator[MarkedMount]:
    """Yield those mounts that GKM made, by the mark in their device names."""
    for mount in mounts:
        mark = mark_of(mount)
        if mark is not None:
            yield MarkedMount(mount.point, mark)


def _text(field: bytes) -> str:
    return _OCTAL.sub(lambda match: bytes((int(match[1], 8) & 0xFF,)), field).decode(errors="surrogateescape")
