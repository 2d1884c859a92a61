"""Links of all Markdown files, offline; and the checker itself, with faults that a person makes."""

import subprocess
from pathlib import Path

import links
import pytest
from markdown_links import anchors, rewritten
from markdown_links import links as links_of

ROOT = Path(__file__).parents[3]


def test_every_link_of_the_repository_leads_somewhere() -> None:
    assert links.faults(ROOT) == []
    assert len(list(links.pages(ROOT))) > 60


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[a](gone.md)", "there is no such file"),
        ("[a](other.md#gone)", "other.md has no such heading"),
        ("[a](#gone)", "page.md has no such heading"),
        ("![a](gone.png)", "there is no such file"),
        ("[a][1]\n\n[1]: gone.md", "there is no such file"),
        ('<img src="gone.png">', "there is no such file"),
        ("[a](/other.md)", "an absolute path"),
        ("[a](../../etc/passwd)", "it leaves the repository"),
        ("- [a [b]](gone.md) and [c](other.md)", "there is no such file"),
        ("`code` [a](gone.md) `more`", "there is no such file"),
    ],
)
def test_a_broken_link_is_found(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "other.md").write_text("# Here\n")
    (tmp_path / "page.md").write_text(f"# Page\n\n{text}\n")
    (found,) = links.faults(tmp_path)
    assert found.startswith("page.md:")
    assert fault in found


@pytest.mark.parametrize(
    "text",
    [
        "[a](other.md#two-words-and-code)",
        "[a](other.md#two-words-and-code-1)",
        "[a](other.md#by-hand)",
        "[a](#page)",
        "[a](https://registry.example/gone.md)",
        "[a](mailto:a@example.com)",
        "[a](.)",
        "`[a](gone.md)`",
        "``a ` [a](gone.md)``",
        "```\n[a](gone.md)\n```",
        "~~~~ text\n```\n[a](gone.md)\n~~~~",
    ],
)
def test_what_is_no_broken_link_passes(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.md").write_text(
        '# Two words, **and** `code`!\n## [Two words](x) and code\n```\n# none\n```\n<a id="by-hand"></a>\n'.replace(
            "(x)", "(other.md)"
        )
    )
    (tmp_path / "page.md").write_text(f"# Page\n\n{text}\n")
    assert links.faults(tmp_path) == []


def test_headings_in_code_are_no_anchors() -> None:
    assert anchors("# A-b c_d: (e)\n```\n# no\n```\n#no\n") == {"a-b-c_d-e"}


def test_a_link_has_its_line() -> None:
    assert [(link.target, link.line) for link in links_of("a\n\n[b](c.md#d) [e](f)")] == [("c.md#d", 3), ("f", 3)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](b.md) and ![c](b.md#d)", "[a](x) and ![c](x)"),
        ('[a](b.md "a title") [c](<b.md>)', '[a](x "a title") [c](<x>)'),
        ("`[a](b.md)` [a](b.md)", "`[a](b.md)` [a](x)"),
        ("```\n[a](b.md)\n```\n[a](b.md)\n", "```\n[a](b.md)\n```\n[a](x)\n"),
        ("[1]: b.md", "[1]: x"),
        ('<img src="b.md">', '<img src="x">'),
        ("see [a `b` [c]](directory), [d](directory)", "see a `b` [c], d"),
    ],
)
def test_links_are_rewritten_where_they_are_links_and_nowhere_else(text: str, expected: str) -> None:
    assert rewritten(text, lambda target: None if target == "directory" else "x") == expected


def test_a_file_that_is_not_in_the_repository_is_a_broken_link(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("built.md\n")
    (tmp_path / "built.md").write_text("# Built\n")
    (tmp_path / "page.md").write_text("[a](built.md) [b](new.md) [c](folder)\n")
    (tmp_path / "new.md").write_text("# New\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    assert links.faults(tmp_path) == ["page.md:1: built.md: there is no such file in the repository"]
