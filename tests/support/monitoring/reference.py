"""The table of docs/reference/metrics.md."""

import re
from dataclasses import dataclass
from pathlib import Path

from gkm.api.errors import Reason

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "metrics.md"
COLUMNS = 6


@dataclass(frozen=True)
class Documented:
    """One row. A label without a list of values has None."""

    name: str
    type: str
    unit: str
    programs: frozenset[str]
    labels: dict[str, frozenset[str] | None]


def documented() -> dict[tuple[str, str], Documented]:
    """Return the rows by program and name."""
    rows = [_row(line) for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `gkm_")]
    return {(program, row.name): row for row in rows for program in row.programs}


def _row(line: str) -> Documented:
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    if len(cells) != COLUMNS:
        raise ValueError(f"{PAGE.name}: {len(cells)} cells instead of {COLUMNS} in {line!r}")
    name, kind, unit, programs, labels, meaning = cells
    if not meaning:
        raise ValueError(f"{PAGE.name}: {name} has no meaning")
    return Documented(name.strip("`"), kind, unit, frozenset(programs.split(", ")), dict(map(_label, _parts(labels))))


def _parts(cell: str) -> list[str]:
    return [part for part in cell.split("; ") if part]


def _label(part: str) -> tuple[str, frozenset[str] | None]:
    label, _, values = part.partition(": ")
    label = label.strip("`")
    if "(reasons.md)" in values:
        return label, frozenset(map(str, Reason)) | {"other"}
    words = re.findall(r"`([^`]+)`", values)
    return label, frozenset(words) or None
