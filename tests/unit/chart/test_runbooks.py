"""Every alert has a section in docs/runbooks that says what it means and what to do, by commands that exist."""

import re
from pathlib import Path
from typing import Any

import pytest
from support.monitoring.expressions import alerts
from support.operator.deployment import ROOT

RULES = alerts()
SECTION = re.compile(r"^## (\w+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
PAGES = sorted((ROOT / "docs" / "runbooks").glob("*.md"))
COMMAND = re.compile(r"^\$ (.+)$", re.MULTILINE)
MANUAL = ROOT / "docs" / "man"


def sections(page: Path) -> dict[str, str]:
    return dict(SECTION.findall(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_has_a_summary_a_severity_and_a_runbook(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    path, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    (title,) = (title for title in sections(ROOT / path) if title.lower() == anchor)
    text = sections(ROOT / path)[title]
    assert title == rule["alert"]
    assert COMMAND.search(text), "how to see it"


def test_no_section_is_about_an_alert_that_does_not_exist() -> None:
    names = [title for page in PAGES for title in sections(page)]
    assert sorted(names) == sorted(str(rule["alert"]) for rule in RULES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_ours_exists(page: Path) -> None:
    """The man pages are those of the command line (tests/unit/cli/test_man_page_names.py)."""
    for line in COMMAND.findall(page.read_text(encoding="utf-8")):
        program, *words = line.split()
        assert program in {"gkm", "kubectl", "nvidia-smi"}, line
        if program == "gkm":
            text = _manual(words).read_text(encoding="utf-8")
            for option in re.findall(r"(?<!\S)--?[a-z][a-z-]*", line):
                assert option.replace("-", r"\-") in text, line


def _manual(words: list[str]) -> Path:
    """Return the man page of the command that the first words after `gkm` name."""
    pages = [MANUAL / f"{'-'.join(['gkm', *words[:number]])}.1" for number in range(1, 3)]
    return [page for page in pages if page.exists()][-1]
