"""The result of a bench: medians over runs, and every run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Result:
    """`rows` has one mapping a run; `figures` is their summary."""

    figures: Mapping[str, float]
    rows: Sequence[Mapping[str, float]]

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, float]]) -> "Result":
        """Return the medians of all runs."""
        return cls({name: round(median(row[name] for row in rows), 3) for name in rows[0]}, rows)

    def table(self) -> str:
        """Return median, least and largest of each figure."""
        lines = [f"{'figure':<34}{'median':>12}{'min':>12}{'max':>12}"]
        for name, value in self.figures.items():
            seen = [row[name] for row in self.rows if name in row] or [value]
            lines.append(f"{name:<34}{value:>12.3f}{min(seen):>12.3f}{max(seen):>12.3f}")
        return "\n".join(lines)
