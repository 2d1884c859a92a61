"""Documents name files and modules that exist; tests/unit/docs checks their links."""

import re
from pathlib import Path

import pytest
from markdown_links import links

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
GLOSSARY = ROOT / "docs" / "glossary.md"
CHART = ROOT / "deploy" / "chart" / "gkm"
SOURCES = [ROOT / name for name in ("core", "agent", "csi", "operator", "cli")]
FILE = re.compile(r"(?<![\w/.:-])((?:[\w-]+/)+[\w.-]+\.(?:py|md|yaml|toml))\b")
RENDERED = re.compile(r"^(?:deploy/)?base/")
"""`make manifests` renders each template of the chart into a file of its name."""
MODULE = re.compile(r"(?<![\w/.:-])gkm(?:_(?:agent|csi|operator|cli))?(?!\.io\b)(?:\.[a-z]\w*)+")


def linked(document: Path) -> set[Path]:
    """Return the files within the repository to which a document links."""
    found = links(document.read_text(encoding="utf-8"))
    return {(document.parent / link.path).resolve() for link in found if link.path and not link.is_external}


def is_file(document: Path, name: str) -> bool:
    """Return whether a document may name a file so: from the root, itself, the chart, a source root, or as rendered."""
    rendered = RENDERED.sub("templates/", name)
    folders = (ROOT, document.parent, CHART, *SOURCES)
    return any((folder / name).exists() for folder in folders) or (CHART / rendered).exists()


def is_module(dotted: str) -> bool:
    """Return whether a dotted name is a package, a module, or a name that a module defines."""
    parts = dotted.split(".")
    for root in SOURCES:
        path = root.joinpath(*parts)
        if path.is_dir() or path.with_suffix(".py").is_file():
            return True
        module = path.parent.with_suffix(".py")
        if module.is_file() and re.search(rf"^(?:class |def )?{parts[-1]}\b", module.read_text(), re.MULTILINE):
            return True
    return False


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_and_module_in_a_document_exists(document: Path) -> None:
    text = document.read_text()
    absent = [name for name in FILE.findall(text) if not is_file(document, name)]
    absent += [name for name in MODULE.findall(text) if not is_module(name)]
    assert absent == []


def test_every_row_of_the_glossary_names_its_modules() -> None:
    rows = [line.split("|")[1:-1] for line in GLOSSARY.read_text().splitlines() if line.startswith("| ")][1:]
    without = [word.strip() for word, _, where, _ in rows if not MODULE.search(where)]
    unknown = [name for row in rows for name in re.findall(r"`([^`]+)`", row[2]) if not is_module(name)]
    assert (without, unknown) == ([], [])
    assert len(rows) >= 40
    assert [row[0].lower() for row in rows] == sorted(row[0].lower() for row in rows)


def test_the_index_names_every_document() -> None:
    index = linked(ROOT / "docs" / "README.md")
    absent = [
        str(path.relative_to(ROOT)) for path in DOCUMENTS if path.is_relative_to(ROOT / "docs") and path not in index
    ]
    assert absent == ["docs/README.md"]


def test_the_readme_names_the_differences_from_the_design_documents() -> None:
    assert (ROOT / "docs" / "about" / "differences.md") in linked(ROOT / "README.md")
