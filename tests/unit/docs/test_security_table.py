"""The threats and attacks of docs/reference/security.md: each names tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def rows(page: str, heading: str) -> dict[str, list[str]]:
    """Return the rows of the table below a heading, by their first cell."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    return {row[0].strip(): [cell.strip() for cell in row] for row in lines[1:]}


THREATS, ATTACKS = rows("reference/security.md", "Threats"), rows("reference/security.md", "Attacks on captures")


@pytest.mark.parametrize("row", [*THREATS.values(), *ATTACKS.values()], ids=lambda row: row[0])
def test_a_threat_names_what_is_done_and_tests_that_exist(row: list[str]) -> None:
    _, done, tested, _ = row
    assert done
    named = re.findall(r"`([^`]+)`", tested)
    assert named
    assert [test for test in named if not is_test(test)] == []


def is_test(name: str) -> bool:
    """Return whether `path::function` is a test of the repository."""
    path, _, function = name.partition("::")
    return bool(function) and f"\ndef {function}(" in (ROOT / path).read_text(encoding="utf-8")


def test_there_are_threats_and_attacks() -> None:
    assert len(THREATS) >= 15
    assert len(ATTACKS) >= 10
