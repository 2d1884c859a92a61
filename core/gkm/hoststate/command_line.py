"""The command line of the programs that run in a cluster: argparse with environment variables and safe output."""

import argparse
import os
import sys
from collections.abc import Mapping
from typing import IO, Any, NoReturn

from gkm.hoststate.escaping import escape, escape_lines

LOG_LEVELS = ("debug", "info", "warning", "error")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:  # noqa: ANN401 -- argparse's
        """Print program and version, and end the process."""
        print_line(f"{parser.prog} {installed_version()}")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """argparse's parser, with an environment variable for each flag.

    The parser escapes its output: a message may quote the environment or a manifest that set the arguments.
    """

    def __init__(self, prog: str | None = None, *, environment: Mapping[str, str] = os.environ, **options: Any) -> None:  # noqa: ANN401 -- argparse's
        super().__init__(prog, **options)
        self._environment = environment

    def add_flag(
        self,
        flag: str,
        text: str,
        *,
        variable: str = "",
        default: object = None,
        **options: Any,  # noqa: ANN401 -- argparse's
    ) -> None:
        """Add a flag whose default comes from `variable`: for `--log-level`, GKM_LOG_LEVEL. The flag wins.

        An empty variable is unset.
        """
        name = variable or "GKM_" + flag.removeprefix("--").upper().replace("-", "_")
        shown = f"{name}; default: {default}" if default else name
        self.add_argument(flag, default=self._environment.get(name) or default, help=f"{text} [{shown}]", **options)

    def add_log_level(self) -> None:
        """Add the flag --log-level."""
        self.add_flag("--log-level", ", ".join(LOG_LEVELS), default="info", type=_log_level, metavar="LEVEL")

    def add_version(self) -> None:
        """Add the flag --version."""
        self.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")

    def error(self, message: str) -> NoReturn:
        """Print the usage and one line with the error; exit with code 2."""
        super().error(escape(message))

    def _print_message(self, message: str, file: IO[str] | None = None) -> None:  # type: ignore[override]
        super()._print_message(_encodable(escape_lines(message), file or sys.stderr), file)


def installed_version() -> str:
    """Return the installed version of GKM, `unknown` if the package is not installed."""
    from importlib import metadata  # noqa: PLC0415 -- a process that serves does not need this module

    try:
        return metadata.version("gkm")
    except metadata.PackageNotFoundError:
        return "unknown"


def print_line(text: str, *, error: bool = False) -> None:
    """Print one line on standard output, or on standard error."""
    stream = sys.stderr if error else sys.stdout
    stream.write(_encodable(escape(text), stream) + "\n")


def _encodable(text: str, stream: IO[str]) -> str:
    """Return a text with escapes for the characters that the stream's encoding lacks."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _log_level(text: str) -> str:
    # argparse does not check `choices` for a value from the environment.
    if text not in LOG_LEVELS:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(LOG_LEVELS)}")
    return text
