"""A program of the node, run as a subprocess: found at fixed paths, bounded in time and in output."""

import os
from collections.abc import Sequence
from pathlib import Path

from gkm.gpus.values import printable
from gkm.hoststate.bounded_command import BoundedCommand, CommandResult, RunFailed

_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}


class FabricCommandFailed(Exception):
    """A program failed or its output is unusable; the message names the program and the cause."""


def find(configured: str, candidates: Sequence[str]) -> str | None:
    """Return the path of the configured program, else of the first candidate that exists; $PATH is not searched."""
    return next((path for path in ((configured,) if configured else candidates) if os.access(path, os.X_OK)), None)


class Command:
    """A command line with limits for one run. An exit status other than 0 is a failure."""

    def __init__(self, arguments: Sequence[str], seconds: float, max_bytes: int) -> None:
        self.arguments = arguments
        self._command = BoundedCommand(
            arguments, seconds, max_bytes, environment=_ENVIRONMENT, directory="/", capture_errors=True
        )

    def run(self) -> CommandResult:
        """Run the program and return its output and the first bytes of its standard error.

        Raises:
            FabricCommandFailed: the program does not start, takes too long, prints too much, or fails.
        """
        name = Path(self.arguments[0]).name
        try:
            result = self._command.run()
        except RunFailed as error:
            raise FabricCommandFailed(f"{name} {error}") from error
        if result.code != 0:
            complaint = printable(" ".join(result.errors.decode(errors="replace").split()), 160)
            raise FabricCommandFailed(f"{name} ended with {result.code}" + (f": {complaint}" if complaint else ""))
        return result

    def cancel(self) -> None:
        """End a run that another thread waits for."""
        self._command.cancel()
