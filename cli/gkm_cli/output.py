"""The output of commands: tables for people, stable JSON or YAML for programs (fields are added, never renamed).

Every command imports this module, so it imports no large module before it prints.
"""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from gkm.hoststate.escaping import escape, escape_json

PLUGIN = "kubectl-gkm"


def _program(started_as: str) -> str:
    return PLUGIN.replace("-", " ") if Path(started_as).name.partition(".")[0] == PLUGIN else "gkm"


PROGRAM: Final = _program(sys.argv[0] if sys.argv else "")
"""The program's name in help texts: `gkm`, or `kubectl gkm` when kubectl runs it as its plugin."""
EXIT_NEGATIVE = 3
"""Exit code when the answer is "no": not verified, not compatible, not healthy."""


Output = StrEnum("Output", "TABLE JSON YAML")
"""The output formats of most gkm commands."""
ManifestOutput = StrEnum("ManifestOutput", "TABLE JSON YAML MANIFESTS")
"""The output formats of commands that make manifests for `kubectl apply`."""
OutputOption = Annotated[Output, typer.Option("-o", "--output", help="The output format.")]


class NegativeResult(Exception):
    """The command ran, and its answer is "no": the exit code is EXIT_NEGATIVE."""


class CommandFailed(Exception):
    """A command with valid arguments has no result; the message says why, and how to continue."""


class Undecided(Exception):
    """A command whose exit code 1 is an answer, such as diff, has no answer because of an error."""


class UsageError(Exception):
    """The arguments are wrong: the message names the mistake, the hint the correction."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message}; {hint}")


def show(result: Any, output: StrEnum, print_text: Callable[[], object]) -> None:  # noqa: ANN401 -- any JSON
    """Print a command's `result` for programs as JSON or YAML, or call `print_text` for a format for people."""
    if output == Output.JSON:
        sys.stdout.write(escape_json(_json(result), ascii_only=not supports_unicode()) + "\n")
    elif output == Output.YAML:
        sys.stdout.write(_yaml(result))
    else:
        print_text()


def print_manifests(objects: Iterable[Any]) -> None:
    """Print Kubernetes objects as YAML documents, for `kubectl apply -f -`."""
    for object_ in objects:
        sys.stdout.write("---\n" + _yaml(object_))


def supports_unicode() -> bool:
    """Return whether standard output can show every character."""
    return "utf" in (sys.stdout.encoding or "").lower()


def _yaml(result: Any) -> str:  # noqa: ANN401 -- any JSON
    from gkm.api import documents  # noqa: PLC0415 -- as below

    return documents.encode(result, ascii_only=not supports_unicode())


def _json(result: Any) -> str:  # noqa: ANN401 -- any JSON
    import msgspec  # noqa: PLC0415 -- `gkm --help` prints no value, and must not wait for these

    try:
        return msgspec.json.format(msgspec.json.encode(result), indent=2).decode()
    except UnicodeEncodeError:  # a file name may hold lone surrogates, which JSON can escape
        return json.dumps(msgspec.to_builtins(result), indent=2)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under a header, as kubectl does: one line a row, never folded or cut, at any width.

    Cells are plain text: markup and terminal commands are escaped.
    """
    cells = [[column.upper() for column in columns], *([plain(str(cell)) for cell in row] for row in rows)]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = (cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write("  ".join(padded).rstrip() + "\n")


def plain(text: str) -> str:
    """Return a text with escapes for terminal commands, and for characters that this output cannot show."""
    encoding = sys.stdout.encoding or "utf-8"
    return escape(text).encode(encoding, "backslashreplace").decode(encoding)


def _width(text: str) -> int:
    """Return the columns of a text on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 -- as above

    return cell_len(text)


def line(text: str) -> None:
    """Print a line with foreign text escaped."""
    sys.stdout.write(escape(text) + "\n")
