"""The facts about other products that can age are in one table, with the date of their last check."""

import re
from datetime import UTC, datetime
from pathlib import Path

import outside_facts
import pytest

ROOT = Path(__file__).parents[3]
DATED = re.compile(
    r"\b(?:GA|beta|alpha) (?:since|from|until) Kubernetes \d+\.\d+|\b(?:Kyverno|policy-controller) \d+\.\d+"
)
"""How pages word such facts: stages of features of Kubernetes, and versions of products that we compare with."""
FACTS = outside_facts.facts()


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.fact)
def test_the_page_has_the_text_of_the_fact(fact: outside_facts.OutsideFact) -> None:
    assert fact.text in (ROOT / fact.page).read_text(encoding="utf-8")
    assert fact.checked <= datetime.now(UTC).date()
    assert fact.check


def test_each_dated_fact_of_a_page_is_in_the_table() -> None:
    stated = " ".join(fact.text for fact in FACTS)
    pages = [page for page in (ROOT / "docs").rglob("*.md") if "man" not in page.parts]
    found = {text for page in pages for text in DATED.findall(page.read_text(encoding="utf-8"))}
    assert found
    assert [text for text in sorted(found) if text not in stated] == []


def test_a_line_has_the_age(capsys: pytest.CaptureFixture[str]) -> None:
    outside_facts.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(FACTS)
    assert all(re.match(r" *\d+ days  docs/", line) for line in lines)
