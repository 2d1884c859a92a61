"""Every command line with `gkm` in the documents exists: command, options, and no more arguments than it takes."""

import re
from pathlib import Path

import links
import pytest
from support.docs.command_lines import SEPARATOR, faults, in_blocks

ROOT = Path(__file__).parents[3]
INLINE = re.compile(r"(?<!`)`(gkm [^`]+)`(?!`)")
PLACEHOLDER = re.compile(r"…|\.\.\.|\||\b[A-Z]{3,}\b|\[|\{|^gkm [a-z ]*(,|$)")


def lines() -> list[tuple[str, str]]:
    """Return (page, command line) of all documents: blocks everywhere, and those in running text.

    Running text may name an option without its value, at the end.
    """
    found = []
    for page in links.pages(ROOT):
        text, name = page.read_text(encoding="utf-8"), str(page.relative_to(ROOT))
        found += [(name, line) for line in in_blocks(text)]
        found += [
            (name, _with_value(SEPARATOR.split(line)[0]))
            for line in INLINE.findall(text)
            if not PLACEHOLDER.search(line)
        ]
    return found


def _with_value(line: str) -> str:
    return f"{line} value" if "requires an argument" in faults(line) else line


@pytest.mark.parametrize(("page", "line"), lines())
def test_a_command_line_of_the_documents_parses(page: str, line: str) -> None:
    assert faults(line) == "", page


def test_the_documents_have_command_lines() -> None:
    pages = {page for page, _ in lines()}
    assert {"README.md", "docs/quickstart.md", "docs/how-to/triton.md", "docs/how-to/slurm.md"} <= pages


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("gkm cach list", "no such command"),
        ("gkm cache lst", "no such command"),
        ("gkm cache list --al-namespaces", "No such option"),
        ("gkm cache sign ref --key", "requires an argument"),
        ("gkm cache verify one two --key k", "too many arguments"),
        ("gkm exec --cache ref --no-such -- echo", "No such option"),
    ],
)
def test_a_wrong_command_line_is_found(line: str, fault: str) -> None:
    assert fault.lower() in faults(line).lower()


@pytest.mark.parametrize("line", ["gkm exec --cache ref -- ls --whatever", "gkm --help", "gkm cache list -A"])
def test_a_good_command_line_passes(line: str) -> None:
    assert faults(line) == ""
