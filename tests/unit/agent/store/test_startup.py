"""What lies around when an agent starts and belongs to nothing any more; and what belongs to others."""

import errno
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from gkm.hoststate import locks
from gkm.images.pulling.entry import remove_tree
from gkm_agent.store import node_cleanup as cleaning
from support.agent.fakes import digest_of
from support.agent.node import REF, Node
from support.host.unlistable import unlistable
from support.peers import require

ONE, TWO = digest_of("one"), digest_of("two")


def written(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_locks_and_relocated_files_of_removed_entries_are_removed(node: Node) -> None:
    node.want("llama", digest=ONE)
    node.settle()
    places = (node.layout.relocated, node.layout.relocated_in_memory)
    kept = [node.layout.entry_lock(ONE), *(written(place(ONE) / "ab" / "tree" / "file") for place in places)]
    gone = [written(node.layout.entry_lock(TWO)), *(written(place(TWO) / "ab" / "tree" / "file") for place in places)]

    node.restart()

    assert all(path.exists() for path in kept)
    assert not any(path.exists() for path in gone)
    assert not any(place(TWO).exists() for place in places)


def test_relocated_files_go_with_their_entry(node: Node) -> None:
    node.want("llama", digest=ONE)
    node.settle()
    written(node.layout.relocated(ONE) / "ab" / "tree" / "file")
    written(node.layout.relocated_in_memory(ONE) / "ab" / "tree" / "file")
    node.want()

    node.settle()
    assert not node.layout.relocated(ONE).exists()
    assert not node.layout.relocated_in_memory(ONE).exists()


def test_a_lock_that_a_publish_holds_stays(node: Node) -> None:
    node.layout.make_directories()
    with locks.shared(node.layout.entry_lock(TWO)):
        node.restart()
        assert node.layout.entry_lock(TWO).exists()


def test_halves_of_our_own_files_go(node: Node) -> None:
    directory = node.layout.pointer(REF).parent
    halves = [
        written(directory / ".cache.json.0123abcd.tmp"),
        written(directory / ".check.json.0123abcd.tmp"),
        written(node.layout.state / ".entries.json.0123abcd.tmp"),
    ]

    node.restart()
    assert not any(path.exists() for path in halves)
    assert not directory.exists()


def test_a_check_without_its_pointer_is_removed(node: Node) -> None:
    written(node.layout.pointer(REF).with_name("check.json"))

    node.restart()
    assert not list(node.layout.caches.iterdir())


@pytest.mark.parametrize("place", ["Not_A_Namespace/llama", "ml-apps/..bad", "_other/llama", "ml-apps/UPPER"])
def test_pointers_under_names_that_cannot_be_go(node: Node, place: str) -> None:
    written(node.layout.caches / place / "cache.json")
    written(node.layout.caches / place / "check.json")

    node.restart()
    assert not list(node.layout.caches.iterdir())


@pytest.mark.parametrize(
    "place",
    [
        "caches/Not_A_Namespace/llama/notes.txt",
        "caches/ml-apps/llama/notes.txt",
        "caches/ml-apps/llama/.notes.swp.tmp",
        "caches/README",
        "caches/ml-apps/README",
        "store/sha256/README",
        "store/sha256/not-hex/file",
        "store/other/file",
        "locks/README",
        "relocated/README/file",
        "README",
        "volumes/csi-1/upper/file",
    ],
)
def test_files_that_we_did_not_make_are_never_deleted(node: Node, place: str) -> None:
    node.want("llama", digest=ONE)
    node.settle()
    stranger = written(node.layout.state / place)

    node.restart()
    node.want()
    node.settle()

    assert stranger.read_text() == "x"


def test_a_link_among_the_caches_is_not_followed(node: Node, tmp_path: Path) -> None:
    elsewhere = written(tmp_path / "elsewhere" / "llama" / "check.json").parent.parent
    (node.layout.caches / "linked").symlink_to(elsewhere)

    node.restart()
    assert (elsewhere / "llama" / "check.json").exists()


def test_a_directory_among_the_blobs_stops_no_cleanup(node: Node) -> None:
    written(node.layout.blobs / "directory" / "file")
    node.restart()
    node.want("llama")

    assert node.settle()


def test_the_pointer_of_a_deleted_cache_is_removed_once_the_source_is_complete(node: Node) -> None:
    node.want("llama", digest=ONE)
    node.settle()
    node.source.complete = False
    node.want()
    node.restart()
    node.settle()
    assert node.layout.pointer(REF).exists()
    node.source.complete = True

    node.settle()
    assert not node.layout.pointer(REF).exists()
    assert node.entries() == set()


def test_cleaning_twice_changes_nothing(node: Node) -> None:
    node.want("llama", digest=ONE)
    node.settle()
    before = sorted(str(path) for path in node.layout.state.rglob("*"))
    cleaning.prepare(node.layout)

    assert sorted(str(path) for path in node.layout.state.rglob("*")) == before


@pytest.mark.parametrize("place", ["work", "trash"])
def test_a_file_that_cannot_be_removed_stops_no_start(node: Node, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    directory = node.layout.state / place
    stuck = written(directory / "a" / "file")
    other = written(directory / "b" / "file")

    def remove(path: Path) -> None:
        if "a" in path.name.split(".")[0].split("-"):
            raise OSError(errno.EIO, "Input/output error", str(path))
        remove_tree(path)

    monkeypatch.setattr("gkm_agent.store.trash.trees.remove_side_by_side", remove)
    node.restart()
    node.want("llama")
    assert node.settle()
    (left,) = node.layout.trash.iterdir()
    assert (left / stuck.name).exists()
    assert not other.exists()
    monkeypatch.undo()
    node.now += 60
    node.settle()
    assert not left.exists()


def test_a_directory_that_cannot_be_listed_stops_no_start(node: Node) -> None:
    for directory in (node.layout.work, node.layout.locks, node.layout.caches):
        with unlistable(directory):
            node.restart()
    node.want("llama")
    assert node.settle()


def test_blobs_beyond_their_bound_go_once_a_minute_without_any_pull(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gkm.images.pulling.blob_files.MAX_CACHED_BYTES", 10)
    node.settle()
    blob = written(node.layout.blobs / "0123-4567", "x" * 11)
    node.settle()
    assert blob.exists()
    node.now += 60
    node.settle()
    assert not blob.exists()


@pytest.mark.mounts
@pytest.mark.parametrize("read_only", ["run", "state"])
def test_an_agent_starts_where_only_the_csi_driver_may_write_below_run(tmp_path: Path, read_only: str) -> None:
    require.root()
    for name in ("run", "state"):
        (tmp_path / name).mkdir()
    prepare = (
        "from gkm_agent.store.node_cleanup import prepare, Layout, Path; prepare(Layout(Path('state'), Path('run')))"
    )
    script = f"mount -t tmpfs -o ro none {read_only} && exec {sys.executable} -c {shlex.quote(prepare)}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == (read_only == "run"), done.stderr
    assert ("Read-only file system" in done.stderr) == (read_only == "state")
