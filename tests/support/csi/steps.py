"""Dies by SIGKILL at a chosen step, where Python itself tells of the step (audit events, PEP 578).

Every change on a file system that Python code makes is announced before it is made, so killing at the n-th event for
every n leaves every state that a death at any instruction can leave.
"""

import os
import signal
import sys
from collections.abc import Callable
from types import ModuleType


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
    """Make events of calls that Python does not tell of: each of these functions of `module` is announced."""
    for name in names:
        setattr(module, name, _announced(name, getattr(module, name)))


def _announced(name: str, call: Callable[..., object]) -> Callable[..., object]:
    def announced(*arguments: object) -> object:
        sys.audit(f"gkm.{name}")
        return call(*arguments)

    return announced
