"""A link in a document leads somewhere: to a file of the repository and, within it, to a heading."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")


def links(document: Path) -> Iterator[tuple[Path, str]]:
    """Yield file and heading of every link within the repository."""
    for path, heading in LINK.findall(document.read_text()):
        if "://" not in path:
            yield (document.parent / path if path else document), heading


def anchors(document: Path) -> set[str]:
    """Return the headings of a document as links name them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(document: Path) -> None:
    broken = [
        f"{path}#{heading}"
        for path, heading in links(document)
        if not path.exists() or (heading and heading not in anchors(path))
    ]
    assert broken == []


def test_the_readme_names_the_differences_from_the_design_documents() -> None:
    assert (ROOT / "docs" / "differences.md") in {path for path, _ in links(ROOT / "README.md")}
