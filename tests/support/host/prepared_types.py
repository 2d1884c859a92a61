"""Runs a program until its threads work, and prints the msgspec types that its warm-up has not prepared.

`python prepared_types.py MODULE ARGUMENTS` calls `MODULE.main()`, ends it by SIGTERM, and prints one line of JSON with
the types that were not prepared when the first thread started, and those that a module imported inside of a function
would add, which threads may call.
"""

import ast
import importlib
import json
import os
import pkgutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from unittest.mock import patch

from gkm.api import msgspec_warmup

OURS = ("gkm.", "gkm_agent.", "gkm_operator.")
OF_OTHER_PROCESSES = {"gkm.gpus.probe"}
"""Modules that only a child process imports from."""
RUNS_SECONDS = 0.5


def _unprepared() -> list[str]:
    return sorted(f"{kind.__module__}.{kind.__name__}" for kind in msgspec_warmup.unprepared())


def _imported_in_functions(main: str) -> Iterator[str]:
    """Yield what functions of the loaded modules import, modules or what they define.

    Not those of `main`, which import what the command line chooses.
    """
    for name, module in list(sys.modules.items()):
        if not name.startswith(OURS) or name == main or name in OF_OTHER_PROCESSES or module.__file__ is None:
            continue
        tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
        for function in (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)):
            for found in ast.walk(function):
                if isinstance(found, ast.ImportFrom) and f"{found.module}.".startswith(OURS):
                    yield from (f"{found.module}.{alias.name}" for alias in found.names)


def run(main: str, arguments: list[str]) -> dict[str, list[str]]:
    """Run the program; return its unprepared types."""
    found: dict[str, list[str]] = {}
    start = threading.Thread.start

    def end(_number: int, _frame: FrameType | None) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    def first_start(thread: threading.Thread) -> None:
        if not found:
            found["at the first thread"] = _unprepared()
            signal.signal(signal.SIGALRM, end)
            signal.setitimer(signal.ITIMER_REAL, RUNS_SECONDS)
        start(thread)

    program = importlib.import_module(main)
    with (
        patch.object(sys, "argv", [main, *arguments]),
        patch.object(threading.Thread, "start", first_start),
        suppress(SystemExit),
    ):
        program.main()
    signal.alarm(0)  # the agent sets one when it ends
    for name in _imported_in_functions(main):
        pkgutil.resolve_name(name)
    return found | {"later": _unprepared()}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], sys.argv[2:])))
