"""Hooks of mkdocs: folders in the navigation, and copies of files outside of docs/ to which pages link.

Links in Markdown are those of the repository, so that they work there too. The site is complete without the repository:
each linked file is below `repository/` in it, Markdown as a page. A link to a directory becomes plain text, as a site
shows no directories.
"""

import os
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

from markdown_links import links, rewritten
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PREFIX = "repository"


def on_config(config: Any) -> Any:  # noqa: ANN401 -- of mkdocs
    """Replace each folder in the navigation by its pages, except those that it names elsewhere.

    So a new page needs no line in mkdocs.yml.
    """
    config.nav = _with_pages(config.nav, set(_named(config.nav)))
    return config


def _named(nav: Any) -> Iterator[str]:  # noqa: ANN401 -- any YAML
    match nav:
        case dict():
            yield from (page for inside in nav.values() for page in _named(inside))
        case list():
            yield from (page for inside in nav for page in _named(inside))
        case str():
            yield nav


def _with_pages(nav: Any, named: Container[str]) -> Any:  # noqa: ANN401 -- any YAML
    match nav:
        case dict():
            return {title: _with_pages(inside, named) for title, inside in nav.items()}
        case list():
            return [
                page
                for item in nav
                for page in (_pages(item, named) if _is_folder(item) else [_with_pages(item, named)])
            ]
    return nav


def _is_folder(item: object) -> bool:
    return isinstance(item, str) and item.endswith("/")


def _pages(folder: str, named: Container[str]) -> list[str]:
    return [page for path in sorted((DOCS / folder).glob("*.md")) if (page := f"{folder}{path.name}") not in named]


def on_files(files: Any, config: Any) -> Any:  # noqa: ANN401 -- of mkdocs
    """Add the files outside of docs/ that pages link to, and those that such pages link to."""
    waiting = [file.src_uri for file in files if file.src_uri.endswith(".md")]
    while waiting:
        page = waiting.pop()
        source = _repository_path(page)
        for link in links((ROOT / source).read_text(encoding="utf-8")):
            target = _outside(source, link.path) if link.path and not link.is_external else None
            if target is None or files.get_file_from_path(f"{PREFIX}/{target}") is not None:
                continue
            file = File.generated(config, f"{PREFIX}/{target}", abs_src_path=str(ROOT / target))
            files.append(file)
            if file.src_uri.endswith(".md"):
                waiting.append(file.src_uri)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:  # noqa: ANN401 -- of mkdocs
    """Point links at the copies, and links of the copies at the pages."""
    here = page.file.src_uri
    source = _repository_path(here)

    def on_the_site(link: str) -> str | None:
        path, mark, anchor = link.partition("#")
        if not path or ":" in path:
            return link
        target = os.path.normpath(os.path.join(os.path.dirname(source), path))  # noqa: PTH118, PTH120 -- of a URL
        if (ROOT / target).is_dir():
            return None
        site = target.removeprefix("docs/") if target.startswith("docs/") else f"{PREFIX}/{target}"
        relative = os.path.relpath(site, os.path.dirname(here) or ".")  # noqa: PTH120 -- of a URL
        return f"{relative}{mark}{anchor}"

    return rewritten(markdown, on_the_site)


def _repository_path(page: str) -> str:
    """Return where a page of the site lies in the repository."""
    return page.removeprefix(f"{PREFIX}/") if page.startswith(f"{PREFIX}/") else f"docs/{page}"


def _outside(page: str, path: str) -> str | None:
    """Return the path in the repository of a file outside of docs/; None for others, and for directories."""
    target = os.path.normpath(os.path.join(os.path.dirname(page), path))  # noqa: PTH118, PTH120 -- of a URL
    return target if not target.startswith("docs/") and (ROOT / target).is_file() else None
