"""The command line of programs that run as processes of a cluster: argparse, and nothing foreign printed raw.

Standard library only: the CSI process has one, too.
"""

import argparse
import sys
from typing import IO, Any, NoReturn

from gkm.hoststate.escaping import escape, escape_lines


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:  # noqa: ANN401 -- argparse's
        """Print program and version, and end the process."""
        # Only here: no process that serves needs the module that reads it.
        from gkm.hoststate.version import version  # noqa: PLC0415

        print_line(f"{parser.prog} {version()}")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """argparse's parser. What it prints may quote the environment or a manifest that set the arguments."""

    def add_version(self) -> None:
        """Add --version."""
        self.add_argument("--version", action=_Version, nargs=0, help="print the version, and end")

    def error(self, message: str) -> NoReturn:
        """End the process with exit code 2, usage and one line."""
        super().error(escape(message))

    def _print_message(self, message: str, file: IO[str] | None = None) -> None:  # type: ignore[override]
        super()._print_message(_fitting(escape_lines(message), file or sys.stderr), file)


def print_line(text: str, *, error: bool = False) -> None:
    """Print one line on standard output, or on standard error."""
    stream = sys.stderr if error else sys.stdout
    stream.write(_fitting(escape(text), stream) + "\n")


def _fitting(text: str, stream: IO[str]) -> str:
    """Return a text with escapes for what a stream's encoding lacks."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
