"""The command line of programs that run as processes of a cluster: argparse, and nothing foreign printed raw.

Standard library only: the CSI process has one, too.
"""

import argparse
import sys
from typing import IO, NoReturn

from gkm.escaping import escape, escape_lines


class Parser(argparse.ArgumentParser):
    """argparse's parser. What it prints may quote the environment or a manifest that set the arguments."""

    def error(self, message: str) -> NoReturn:
        """End the process with exit code 2, usage and one line."""
        super().error(escape(message))

    def _print_message(self, message: str, file: IO[str] | None = None) -> None:  # type: ignore[override]
        super()._print_message(escape_lines(message), file)


def print_line(text: str, *, error: bool = False) -> None:
    """Print one line on standard output, or on standard error."""
    (sys.stderr if error else sys.stdout).write(escape(text) + "\n")
