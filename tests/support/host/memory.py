"""A limit on the memory of processes, as a container has it, and the peak of a process.

A cgroup of version 1 or 2 holds the limit: a process that goes beyond it is killed. Where no cgroup can be made (no
root, a hierarchy that is read-only or not delegated) only the peaks are compared with the limit.
"""

import os
import secrets
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from support.host.waiting import until

_RESET_PEAK = "5"
"""Written to clear_refs: VmHWM starts again from VmRSS (proc(5))."""


@dataclass(frozen=True)
class MemoryGroup:
    """Processes that share a limit in bytes. `path` is their cgroup, None where none can be made."""

    limit: int
    path: Path | None

    @classmethod
    @contextmanager
    def of(cls, limit: int) -> Iterator["MemoryGroup"]:
        """Make a group; its processes must have ended when the block ends."""
        path = _made(limit)
        try:
            yield cls(limit, path)
        finally:
            if path is not None:
                _remove(path)

    def command(self, words: Sequence[str]) -> list[str]:
        """Return a command line that starts `words` within the group, in the same process."""
        if self.path is None:
            return list(words)
        return ["sh", "-c", f'echo $$ > {self.path}/cgroup.procs && exec "$@"', "sh", *words]


def memory_of(pid: int | str, what: str) -> int:
    """Return VmRSS (now) or VmHWM (the most so far) of a process in bytes."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith(f"{what}:"))


def reset_peak() -> int:
    """Start the peak of this process again from what it holds now; return that in bytes."""
    Path("/proc/self/clear_refs").write_text(_RESET_PEAK, encoding="ascii")
    return memory_of("self", "VmRSS")


def _made(limit: int) -> Path | None:
    for parent, name in _parents():
        path = parent / f"gkm-test-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            path.mkdir()
        except OSError:
            continue
        try:
            (path / name).write_text(str(limit), encoding="ascii")
            # Swap would hide what is held. A kernel that does not account for it has no such file.
            with suppress(OSError):
                (path / "memory.swap.max").write_text("0", encoding="ascii")
        except OSError:
            path.rmdir()
            continue
        return path
    return None


def _parents() -> Iterator[tuple[Path, str]]:
    """Yield the cgroups that may have one below them, and the file of the limit there."""
    lines = [line.split() for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()]
    for line in lines:
        kind, options = line[line.index("-") + 1], line[-1].split(",")
        if kind == "cgroup" and "memory" in options:
            yield Path(line[4]), "memory.limit_in_bytes"
        if kind == "cgroup2":
            own = next(
                (text[3:] for text in Path("/proc/self/cgroup").read_text().splitlines() if text.startswith("0::")), "/"
            )
            for group in {Path(line[4]) / own.lstrip("/"), Path(line[4])}:
                with suppress(OSError):
                    (group / "cgroup.subtree_control").write_text("+memory", encoding="ascii")
                yield group, "memory.max"


def _remove(path: Path) -> None:
    """Remove a cgroup. A process that has ended leaves it a moment later."""

    def removed() -> bool:
        with suppress(OSError):
            path.rmdir()
            return True
        return False

    until(removed, f"no process in {path}")


@contextmanager
def traced_below(limit: int) -> Iterator[None]:
    """Assert that Python allocates less than `limit` bytes at once in the block."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()
