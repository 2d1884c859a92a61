"""An entry of the store from outside: its permissions, and the forms of damage."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.images import cache
from gkm.images.pulling import entry, pull
from support.images.cache_registry import Site

MAX = 1 << 30


@pytest.fixture(params=[0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    mask: int = request.param
    before = os.umask(mask)
    yield mask
    os.umask(before)


def fetched(site: Site, layout: Layout) -> Path:
    return pull.fetch(site.client, cache.describe(site.client, site.ref), layout, max_bytes=MAX).path


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat(follow_symlinks=False).st_mode)


def test_everybody_may_read_an_entry_whatever_the_umask_of_the_agent(site: Site, layout: Layout, umask: int) -> None:
    del umask
    path = fetched(site, layout)
    content = path / entry.CONTENT
    assert mode_of(path) == 0o755
    assert {mode_of(path / name) for name in (entry.FILE_LIST, entry.MANIFEST)} == {0o444}
    inside = list(content.rglob("*"))
    assert {mode_of(directory) for directory in [content, *inside] if directory.is_dir()} == {0o555}
    assert {mode_of(file) for file in inside if file.is_file()} <= {0o444, 0o555}
    assert any(file.is_file() for file in inside)


@pytest.mark.parametrize("change", [{"digest": "sha256:" + "0" * 64}, {"sizeBytes": "many"}, {"files": None}])
def test_a_list_that_is_not_that_of_the_entry_is_damage(site: Site, layout: Layout, change: dict[str, object]) -> None:
    path = fetched(site, layout)
    listed = json.loads((path / entry.FILE_LIST).read_text()) | change
    (path / entry.FILE_LIST).unlink()
    (path / entry.FILE_LIST).write_text(json.dumps(listed))
    with pytest.raises(UnreadableState, match=r"files\.json"):
        entry.find(layout, site.ref.digest or "")


def test_an_entry_without_its_content_directory_is_damaged(site: Site, layout: Layout) -> None:
    path = fetched(site, layout)
    entry.remove_tree(path / entry.CONTENT)
    with pytest.raises(UnreadableState, match="has no cache/"):
        entry.find(layout, site.ref.digest or "")


def test_an_entry_that_is_published_between_two_looks_is_found(
    site: Site, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fetched(site, layout)
    elsewhere = path.rename(path.with_name("elsewhere"))

    def published(_path: Path) -> bool:
        if elsewhere.exists():
            elsewhere.rename(path)
        return True

    monkeypatch.setattr("gkm.images.pulling.entry.os.path.lexists", published)
    found = entry.find(layout, site.ref.digest or "")
    assert found is not None
    assert found.path == path


def test_an_entry_without_its_list_is_damaged(site: Site, layout: Layout) -> None:
    path = fetched(site, layout)
    (path / entry.FILE_LIST).unlink()
    with pytest.raises(UnreadableState, match=r"the entry has no files\.json"):
        entry.find(layout, site.ref.digest or "")


def test_a_tree_is_removed_and_nothing_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "foreign" / "sealed").mkdir(parents=True)
    (tmp_path / "foreign" / "sealed").chmod(0o555)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "foreign")
    (tmp_path / "link").symlink_to(tmp_path / "foreign")
    (tmp_path / "file").touch()
    for name in ("tree", "link", "file", "gone"):
        entry.remove_tree(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["foreign"]
    assert mode_of(tmp_path / "foreign" / "sealed") == 0o555
