"""What results are printed on: a terminal, a pipe, or a page."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from rich.text import Text


class Sheet(Protocol):
    """Lines, headings, tables and lists, one below the other; `width` in characters. Text may be foreign."""

    width: int

    def line(self, content: str, style: str = "", /) -> None:
        """Print a line."""

    def heading(self, content: str, /) -> None:
        """Print a heading."""

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str | int | Text]],
        more: str = "",
        limit: int | None = ...,
        /,
    ) -> None:
        """Print rows under a header, without empty columns. `more` names the rows beyond `limit`."""

    def numbered(self, sentences: Iterable[str], /) -> None:
        """Print a numbered list."""
