"""Read the mounts of this process from /proc/self/mountinfo (proc_pid_mountinfo(5))."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_BYTES = 64 << 20
"""The kernel allows 100,000 mounts in a namespace (fs.mount-max); a longer file is an error."""

_MOUNTINFO = Path("/proc/self/mountinfo")
_OCTAL = re.compile(rb"\\([0-7]{3})")
_FIXED_FIELDS = 6
_TAIL_FIELDS = 2


class TooManyMounts(Exception):
    """mountinfo is larger than any real one; a part of it would lead to wrong conclusions."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One line: `root` is the directory of the file system that is mounted at `point`, `source` the device."""

    root: str
    point: str
    kind: str
    source: str


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


def _text(field: bytes) -> str:
    return _OCTAL.sub(lambda match: bytes((int(match[1], 8) & 0xFF,)), field).decode(errors="surrogateescape")
