"""What a process writes to standard error besides its events."""

import signal
import subprocess
import sys

from support.host.waiting import scaled

CRASH = """
import os, signal
from gkm.hoststate import logs
logs.configure()
def crash():
    os.kill(os.getpid(), signal.SIGSEGV)
crash()
"""


def test_a_crash_of_native_code_leaves_where_the_threads_were() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASH], capture_output=True, text=True, timeout=scaled(60), check=False
    )
    assert done.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in done.stderr
    assert "in crash" in done.stderr
