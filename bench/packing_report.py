"""The result of the packing bench: several tables, their figures, and failures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Cell = str | int | float
Row = Mapping[str, Cell]


@dataclass(frozen=True)
class Table:
    """Rows with the same columns, under a title."""

    title: str
    rows: Sequence[Row]

    def __str__(self) -> str:
        """Return it as text, a column as wide as its widest cell."""
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        lines = [names, *([_text(row.get(name, "")) for name in names] for row in self.rows)]
        widths = [max(len(line[at]) for line in lines) for at in range(len(names))]
        texts = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
        return "\n".join([self.title, *(text.rstrip() for text in texts)])


@dataclass(frozen=True)
class Report:
    """The result that run.py prints and writes: like figures.Result, with tables for its rows.

    `failures` are sentences about violated expectations: with any, the bench exits with an error.
    """

    figures: Mapping[str, float]
    tables: Sequence[Table]
    failures: Sequence[str] = ()

    @property
    def rows(self) -> Sequence[Row]:
        """Return the rows of all tables."""
        return [{"table": table.title, **row} for table in self.tables for row in table.rows]

    def table(self) -> str:
        """Return the tables as text, and the figures."""
        figures = Table("figures", [{"figure": name, "value": value} for name, value in self.figures.items()])
        return "\n\n".join(map(str, [*self.tables, figures]))


def _text(cell: Cell) -> str:
    return f"{cell:.1f}" if isinstance(cell, float) else str(cell)
