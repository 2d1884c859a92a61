"""Check the links of all Markdown files offline: each relative link names a file, and each anchor a heading of it.

Links with a scheme (https, mailto) are not followed: their servers are no part of this repository.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from markdown_links import Link, anchors, links

ROOT = Path(__file__).resolve().parent.parent
_NOT_OURS = {"build", "dist", "site", "node_modules"}


def pages(root: Path) -> Iterator[Path]:
    """Yield the Markdown files below a directory, without hidden directories and build outputs."""
    for directory, names, files in os.walk(root):
        names[:] = sorted(name for name in names if not name.startswith(".") and name not in _NOT_OURS)
        yield from (Path(directory, name) for name in sorted(files) if name.endswith(".md"))


def faults(root: Path) -> list[str]:
    """Return `page:line: what is wrong` for each broken link below a directory."""
    return [
        f"{page.relative_to(root)}:{link.line}: {link.target}: {fault}"
        for page in pages(root)
        for link in links(page.read_text(encoding="utf-8"))
        if (fault := _fault(root, page, link))
    ]


def _fault(root: Path, page: Path, link: Link) -> str:
    """Return what is wrong with a link, or an empty text."""
    if link.is_external:
        return ""
    if link.path.startswith("/"):
        return "an absolute path is no file of the repository: write it relative to the page"
    target = Path(os.path.normpath(page.parent / link.path)) if link.path else page
    if not target.is_relative_to(root):
        return "it leaves the repository"
    if not target.exists() or not _ignored(root).isdisjoint((target, *target.parents)):
        return "there is no such file in the repository"
    if link.anchor and target.suffix == ".md" and link.anchor not in _anchors(target):
        return f"{target.relative_to(root)} has no such heading"
    return ""


@cache
def _ignored(root: Path) -> frozenset[Path]:
    """Return the files and directories that git ignores; none outside of a repository."""
    words = ["git", "-C", str(root), "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603 -- no foreign words
    return frozenset(root / name for name in done.stdout.split("\0") if name)


@cache
def _anchors(page: Path) -> set[str]:
    return anchors(page.read_text(encoding="utf-8"))


def main() -> int:
    """Print what is wrong; return the exit code."""
    found = faults(ROOT)
    for fault in found:
        print(fault)  # noqa: T201 -- a command line
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
