"""Running a program of the node: found at fixed places, bounded in time and output, its answer handed on as bytes."""

import os
from collections.abc import Sequence
from pathlib import Path

from gkm.gpus.values import printable
from gkm.hoststate.bounded_command import BoundedCommand, RunFailed

_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}


class CommandFailed(Exception):
    """The program gave no answer that can be used; the message says which and why."""


def find(configured: str, candidates: Sequence[str]) -> str | None:
    """Return the program that is configured, else the first candidate that is there; never one of $PATH."""
    return next((path for path in ((configured,) if configured else candidates) if os.access(path, os.X_OK)), None)


class Command:
    """A command line with the bounds of one run; a program that exits with another status than 0 has failed."""

    def __init__(self, arguments: Sequence[str], seconds: float, max_bytes: int) -> None:
        self.arguments = arguments
        self._command = BoundedCommand(
            arguments, seconds, max_bytes, environment=_ENVIRONMENT, directory="/", capture_errors=True
        )

    def run(self) -> bytes:
        """Return what the program prints.

        Raises:
            CommandFailed: it cannot be started, takes too long, prints too much, or fails.
        """
        name = Path(self.arguments[0]).name
        try:
            result = self._command.run()
        except RunFailed as error:
            raise CommandFailed(f"{name} {error}") from error
        if result.code != 0:
            complaint = printable(" ".join(result.errors.decode(errors="replace").split()), 160)
            raise CommandFailed(f"{name} ended with {result.code}" + (f": {complaint}" if complaint else ""))
        return result.output

    def cancel(self) -> None:
        """End a run that is under way in another thread."""
        self._command.cancel()
