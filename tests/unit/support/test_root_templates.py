"""The link to the templates of NVIDIA's controller is shared by test runs, and gone after the last one."""

from pathlib import Path

import pytest
from support.domains.root_templates import linked
from support.peers.missing import Missing


@pytest.fixture
def templates(tmp_path: Path) -> Path:
    made = tmp_path / "module" / "templates"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def link(tmp_path: Path) -> Path:
    return tmp_path / "link"


def test_the_last_user_removes_the_link(templates: Path, link: Path) -> None:
    with linked(templates, link, link.parent):
        with linked(templates, link, link.parent):
            assert link.resolve() == templates
        assert link.resolve() == templates
    assert not link.is_symlink()


def test_a_link_that_a_killed_run_left_is_replaced(templates: Path, link: Path) -> None:
    link.symlink_to(templates.parent / "of-an-older-version")
    with linked(templates, link, link.parent):
        assert link.resolve() == templates


def test_a_directory_of_others_is_left_alone(templates: Path, link: Path) -> None:
    link.mkdir()
    with pytest.raises(Missing, match="is not"), linked(templates, link, link.parent):
        pass
    assert link.is_dir()


def test_two_versions_at_once_are_refused(templates: Path, link: Path, tmp_path: Path) -> None:
    with linked(templates, link, link.parent):
        with pytest.raises(Missing, match="is not"), linked(tmp_path / "other", link, tmp_path):
            pass
        assert link.resolve() == templates
