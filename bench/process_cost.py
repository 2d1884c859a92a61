"""What a process costs, as the kernel counts it."""

import time
from pathlib import Path

_WHOLE_PROCESS = 2
"""CPUCLOCK_SCHED: nanoseconds of all threads, also of those that ended (clock_getcpuclockid(3))."""


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of a process so far. /proc counts in steps of 10 ms, too coarse for few calls."""
    return time.clock_gettime(~pid << 3 | _WHOLE_PROCESS)


def memory_mib(pid: int, what: str) -> float:
    """Return VmRSS (now) or VmHWM (the most so far) of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(what)) / 1024
