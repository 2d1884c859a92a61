"""Print tables and bars: with colors and within its width on a terminal, as plain characters in a pipe."""

import sys
from collections.abc import Iterable, Sequence
from typing import Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gkm_cli.output import plain, supports_unicode
from gkm_cli.output import table as print_table

PIPE_WIDTH = 160
MAX_ROWS = 40
Rows = Sequence[Sequence[str | int | Text]]


class Sheet(Protocol):
    """A terminal, a pipe or a page: lines, headings, tables and lists, one below the other. Text may be foreign.

    `width` is in characters. A bar of a table is a Text, of which each style is a color that `legend` explains.
    """

    width: int

    def line(self, content: str, style: str = "", /) -> None:
        """Print a line; `style` is for a terminal or page with colors."""

    def heading(self, content: str, /) -> None:
        """Print a heading."""

    def table(self, columns: Sequence[str], rows: Rows, more: str = "", limit: int | None = ..., /) -> None:
        """Print rows under a header, without empty columns. `more` names the rows beyond `limit`."""

    def legend(self, title: str, meanings: Sequence[tuple[Text, str]], unit: str, /) -> None:
        """Print a heading for bars: what each sign of them means, and how much one sign is."""

    def numbered(self, sentences: Iterable[str], /) -> None:
        """Print a numbered list."""


class Terminal:
    """Standard output as a Sheet: a terminal or a pipe."""

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()
        width = None if self._is_terminal else PIPE_WIDTH
        self._console = Console(width=width, highlight=False, soft_wrap=not self._is_terminal)
        self.width = self._console.width

    def line(self, text: str, style: str = "") -> None:
        """Print a line, wrapped on a terminal."""
        self._console.print(Text(plain(text), style=style))

    def heading(self, text: str) -> None:
        """Print an empty line and a heading."""
        self._console.print()
        self.line(text, "bold")

    def table(self, columns: Sequence[str], rows: Rows, more: str = "", limit: int | None = MAX_ROWS) -> None:
        """Print rows under a header, without empty columns. `more` names the rows beyond `limit`."""
        filled = [at for at in range(len(columns)) if any(str(row[at]) for row in rows)]
        kept = [columns[at] for at in filled]
        shown = [[row[at] for at in filled] for row in rows[:limit]]
        if self._is_terminal:
            self._console.print(_grid(kept, shown))
        else:
            print_table(kept, shown)
        if limit is not None and len(rows) > limit:
            self.line(f"... and {len(rows) - limit} more {more}; -o json has all")

    def legend(self, title: str, meanings: Sequence[tuple[Text, str]], unit: str) -> None:
        """Print a heading for bars: what each sign of them means, and how much one sign is."""
        signs = "  ".join(f"{sign} {meaning}" for sign, meaning in meanings)
        self.heading(f"{title}: {signs}; a sign is {unit}")

    def numbered(self, sentences: Iterable[str]) -> None:
        """Print a numbered list."""
        for number, sentence in enumerate(sentences, 1):
            self.line(f"{number}. {sentence}")


def _grid(columns: Sequence[str], rows: Rows) -> Table:
    """Return a table with colors, whose cells are cut at the width of the terminal."""
    grid = Table(box=None, pad_edge=False, header_style="", padding=(0, 2, 0, 0))
    for column in columns:
        grid.add_column(column.upper(), no_wrap=True, overflow="ellipsis" if supports_unicode() else "crop")
    for row in rows:
        grid.add_row(*(cell if isinstance(cell, Text) else Text(plain(str(cell))) for cell in row))
    return grid
