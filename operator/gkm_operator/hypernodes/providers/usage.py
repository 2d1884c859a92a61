"""The processes and the memory of a process group, read from /proc.

A limit on processes (RLIMIT_NPROC) counts all of a user on the machine, and one on memory counts each process alone. So
the controllers look at the group of each child from time to time.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PAGE = os.sysconf("SC_PAGE_SIZE")
# proc_pid_stat(5): fields behind the name of the program, from the state (3) on.
_GROUP, _RSS = 5 - 3, 24 - 3


class ProcessUsage(NamedTuple):
    """The number of processes, and their resident memory in bytes."""

    processes: int
    resident: int


def usage_of(group: int) -> ProcessUsage:
    """Return what the processes of a group use."""
    pages = [int(fields[_RSS]) for fields in _processes() if int(fields[_GROUP]) == group]
    return ProcessUsage(len(pages), sum(pages) * _PAGE)


def _processes() -> Iterator[list[str]]:
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            with suppress(OSError):
                # The name of a program may hold spaces and brackets.
                yield (directory / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
