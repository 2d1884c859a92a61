"""The site: it builds without a warning, has every document, and fetches nothing from other servers."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FETCHED = re.compile(r"<(?:script|img|link|iframe|source)\b[^>]*?\b(?:src|href)=\"?([^\"\s>]+)", re.IGNORECASE)
IN_STYLES = re.compile(r"url\(([^)]+)\)|@import\s+([^;]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(directory)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return directory


def test_every_document_is_a_page(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    pages = {page.with_name("index.html") if page.name == "README.html" else page for page in pages}
    assert len(pages) > 60
    assert [page for page in sorted(pages) if not (site / page).is_file()] == []


def test_a_linked_file_of_the_repository_is_on_the_site(site: Path) -> None:
    assert (site / "repository" / "deploy" / "samples" / "pod.yaml").is_file()
    assert (site / "repository" / "SECURITY.html").is_file()
    assert 'href="repository/deploy/samples/pod.yaml"' in (site / "quickstart.html").read_text(encoding="utf-8")


def test_a_reader_fetches_nothing_from_other_servers(site: Path) -> None:
    for page in site.rglob("*.html"):
        fetched = FETCHED.findall(page.read_text(encoding="utf-8"))
        assert [url for url in fetched if re.match(r"(?:https?:)?//", url)] == [], page
    for style in site.rglob("*.css"):
        urls = [one or other for one, other in IN_STYLES.findall(style.read_text(encoding="utf-8"))]
        assert [url for url in urls if re.match(r"[\"']?(?:https?:)?//", url)] == [], style
