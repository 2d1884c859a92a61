"""The threats of docs/reference/security.md: each names tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SECTION = (
    (ROOT / "docs" / "reference" / "security.md")
    .read_text(encoding="utf-8")
    .partition("## Threats\n")[2]
    .partition("\n## ")[0]
)
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in SECTION.splitlines() if line.startswith("| ")]
THREATS = {row[0]: row for row in ROWS[1:]}


@pytest.mark.parametrize("threat", THREATS)
def test_a_threat_names_what_is_done_and_tests_that_exist(threat: str) -> None:
    _, done, tested, _ = THREATS[threat]
    assert done
    named = re.findall(r"`([^`]+)`", tested)
    assert named
    assert [test for test in named if not is_test(test)] == []


def is_test(name: str) -> bool:
    """Return whether `path::function` is a test of the repository."""
    path, _, function = name.partition("::")
    return bool(function) and f"\ndef {function}(" in (ROOT / path).read_text(encoding="utf-8")


def test_there_are_threats() -> None:
    assert len(THREATS) >= 15
