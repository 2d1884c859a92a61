"""`make version` states a version once; `make release` refuses any other."""

from pathlib import Path

import pytest
from releasing import versions

CHANGES = "# Changelog\n\n## Unreleased\n\n### A\n- new\n\n## 0.9.0 - 2025-01-01\n- old\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "gkm"\nversion = "0.9.0"\n[tool.x]\nversion = "5"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    return tmp_path


def test_stating_a_version_names_what_is_unreleased(root: Path) -> None:
    versions.state(root, "1.0.0", "2026-01-02")
    assert versions.current(root) == "1.0.0"
    assert '[tool.x]\nversion = "5"' in (root / "pyproject.toml").read_text()
    assert versions.entry(root, "1.0.0") == "### A\n- new\n"
    assert versions._sections((root / "CHANGELOG.md").read_text())["Unreleased"].strip() == ""


def test_stating_it_again_changes_nothing(root: Path) -> None:
    versions.state(root, "1.0.0", "2026-01-02")
    before = (root / "CHANGELOG.md").read_text()
    versions.state(root, "1.0.0", "2026-01-03")
    assert (root / "CHANGELOG.md").read_text() == before


@pytest.mark.parametrize(
    "version", ["", "1", "1.2", "v1.2.3", "01.2.3", "1.2.3+x", "1.2.3-", "1.2.3\n", "1.2.3 ", "1.0.0-rc.1"]
)
def test_a_version_that_helm_and_pip_do_not_write_alike_is_none(root: Path, version: str) -> None:
    with pytest.raises(versions.WrongVersion, match=r"is no version such as 1\.2\.3"):
        versions.state(root, version, "2026-01-02")
    assert versions.current(root) == "0.9.0"


@pytest.mark.parametrize("version", ["0.0.1", "10.20.30"])
def test_other_versions_are(version: str) -> None:
    assert versions.check(version) == version


def test_a_release_of_another_version_is_refused(root: Path) -> None:
    with pytest.raises(versions.WrongVersion, match=r"states 0\.9\.0: run 'make version VERSION=1\.0\.0'"):
        versions.entry(root, "1.0.0")


def test_a_release_without_an_entry_is_refused(root: Path) -> None:
    (root / "CHANGELOG.md").write_text("# Changelog\n\n## 0.9.0 - 2025-01-01\n\n## 0.8.0\n- old\n")
    with pytest.raises(versions.WrongVersion, match="has nothing about"):
        versions.entry(root, "0.9.0")
