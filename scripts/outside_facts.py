"""Print the facts about other products that pages state, the oldest check first: each can age."""

import json
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).with_name("outside_facts.json")


class OutsideFact(NamedTuple):
    """A fact, the text that a page has of it, when it was last checked, and how."""

    fact: str
    page: str
    text: str
    checked: date
    check: str


def facts() -> list[OutsideFact]:
    """Return the facts of the table, the oldest check first."""
    rows = json.loads(TABLE.read_text(encoding="utf-8"))
    found = [OutsideFact(**row | {"checked": date.fromisoformat(row["checked"])}) for row in rows]
    return sorted(found, key=lambda each: each.checked)


def main() -> None:
    """Print a line for each fact: its age in days, the page, the fact, and how to check it."""
    today = datetime.now(UTC).date()
    for each in facts():
        sys.stdout.write(f"{(today - each.checked).days:4} days  {each.page}: {each.fact}; check: {each.check}\n")


if __name__ == "__main__":
    main()
