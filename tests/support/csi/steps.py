"""End the process by SIGKILL at a chosen step; steps are Python's audit events (PEP 578).

Python raises an event before every change of a file system, so a kill at the n-th event for every n leaves every state
that a kill at any instruction can leave.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from support.host.waiting import scaled


class Counter:
    """Kills this process at its `fatal`-th audit event after `arm`."""

    def __init__(self, fatal: int) -> None:
        self._left = -1
        self._fatal = fatal
        sys.addaudithook(self._count)

    def arm(self) -> None:
        self._left = self._fatal

    def disarm(self) -> None:
        self._left = -1

    def _count(self, _: str, __: tuple[object, ...]) -> None:
        if self._left == 0:
            self._left = -1  # os.kill is an event itself
            os.kill(os.getpid(), signal.SIGKILL)
        if self._left > 0:
            self._left -= 1


def kill_at(event: str, part: str) -> None:
    """Kill this process before the first `event` whose first argument holds `part`."""

    def check(name: str, arguments: tuple[object, ...]) -> None:
        if name == event and part in str(arguments[0]):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(check)


def told_of(module: ModuleType, *names: str) -> None:
    """Raise events for calls without events of their own: each of these functions of `module`."""
    for name in names:
        setattr(module, name, _announced(name, getattr(module, name)))


def _announced(name: str, call: Callable[..., object]) -> Callable[..., object]:
    def announced(*arguments: object, **options: object) -> object:
        sys.audit(f"gkm.{name}")
        return call(*arguments, **options)

    return announced


def printed(program: str, *arguments: str | Path, seconds: float = 120) -> Any:  # noqa: ANN401 -- what the program prints
    """Run a test module as a program, because an audit hook stays until its process ends; return what it prints."""
    run = subprocess.run(
        [sys.executable, program, *arguments],
        env={**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)},
        check=False,
        capture_output=True,
        text=True,
        timeout=scaled(seconds),
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def killed_at(fatal: int, call: Callable[[], object]) -> bool:
    """Run a call in a child that dies at step `fatal`; return whether it died, else the call must have succeeded."""
    child = os.fork()
    if child == 0:
        counter = Counter(fatal)
        counter.arm()
        call()
        counter.disarm()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "the call itself failed"
    return False
