"""Limits that a child process puts on itself before it handles foreign text; the kernel enforces them.

With them it opens no file and no socket (not one descriptor is free), starts no process and leaves no core dump. So
code that someone takes over can only compute, within the memory that is left, and write to what is open already.
"""

import resource
import signal
from pathlib import Path


def restrict(headroom_bytes: int) -> None:
    """Limit this process to `headroom_bytes` more memory than it uses now, and to its open files.

    Call it when all modules are loaded. A CPU time limit is `signal.setitimer(signal.ITIMER_PROF, seconds)`, which then
    ends the process by SIGPROF: RLIMIT_CPU counts whole seconds.
    """
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limits = {
        resource.RLIMIT_AS: pages * resource.getpagesize() + headroom_bytes,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_NOFILE: 0,
    }
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    for limit, value in limits.items():
        resource.setrlimit(limit, (value, value))
