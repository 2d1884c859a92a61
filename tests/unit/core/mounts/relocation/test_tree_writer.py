"""The walk over foreign content: the rewritten tree, and refused content."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from gkm.mounts.relocation import tree_writer, triton
from gkm.mounts.relocation.mount_path import MountPath
from gkm.mounts.relocation.rewrite_result import RewriteResult
from gkm.mounts.relocation.tree_writer import RewriteCounts, Unrelocatable
from gkm.mounts.relocation.triton import MISS
from support.csi.odd_files import make_socket
from support.host.descriptors import open_below

DATA = Path(__file__).resolve().parents[4] / "data" / "triton-cache"
CACHE = MountPath("/cache")


def written(content: Path, destination: Path, mount_path: MountPath = CACHE) -> RewriteCounts:
    descriptor = os.open(content, os.O_PATH | os.O_DIRECTORY)
    try:
        return tree_writer.write(descriptor, destination, mount_path)
    finally:
        os.close(descriptor)


def files_below(top: Path) -> dict[str, bytes]:
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def kernel(directory: Path, name: str = "add") -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.json").write_text("{}")
    group = {"child_paths": {f"{name}.json": f"/build/{name}.json"}}
    (directory / f"__grp__{name}.json").write_text(json.dumps(group))


@pytest.fixture
def content(tmp_path: Path) -> Path:
    """A cache of one kernel, `K`."""
    kernel(tmp_path / "content" / "K")
    return tmp_path / "content"


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    """The path of the tree; the fixture checks that the walk closes its descriptors."""
    yield tmp_path / "tree"
    assert open_below(tmp_path) == []


def test_a_real_cache_becomes_its_group_files_and_nothing_else(tree: Path) -> None:
    assert written(DATA, tree, MountPath("/root/.triton/cache")) == RewriteCounts(rewritten=2, incomplete=0)
    files = files_below(tree)
    assert set(files) == {str(path.relative_to(DATA)) for path in DATA.glob("*/__grp__*")}
    for name, data in files.items():
        directory = f"/root/.triton/cache/{name.partition('/')[0]}"
        for child, path in json.loads(data)["child_paths"].items():
            assert path == f"{directory}/{child}"


def test_the_same_content_gives_the_same_tree(tree: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for path in sorted(DATA.rglob("*"), reverse=True):
        if path.is_file():
            (copy / path.relative_to(DATA)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy / path.relative_to(DATA))
    written(DATA, tree)
    written(copy, tmp_path / "again")
    assert files_below(tree) == files_below(tmp_path / "again")


def test_every_pod_may_read_it_whatever_the_umask_is(content: Path, tree: Path) -> None:
    before = os.umask(0o077)
    try:
        written(content, tree)
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in (tree, tree / "K")}
    assert modes == {0o755}
    assert (tree / "K" / "__grp__add.json").stat().st_mode & 0o777 == 0o444


def test_deep_caches_of_inductor_and_vllm_are_found(content: Path, tree: Path) -> None:
    backbone = content / "torch_compile_cache" / "0123456789" / "rank_0_0" / "backbone"
    kernel(backbone / "artifact_0" / "triton" / "0" / "K")
    (backbone / "vllm_compile_cache.py").write_text("{((1, 8), 0, 'inductor_standalone'): ('artifact_0', '/old')}")
    assert written(content, tree) == RewriteCounts(rewritten=3, incomplete=0)
    inside = "torch_compile_cache/0123456789/rank_0_0/backbone"
    assert f"'/cache/{inside}/artifact_0'" in (tree / inside / "vllm_compile_cache.py").read_text()
    group = json.loads((tree / inside / "artifact_0/triton/0/K/__grp__add.json").read_text())
    assert group["child_paths"] == {"add.json": f"/cache/{inside}/artifact_0/triton/0/K/add.json"}


def test_a_group_at_the_very_top_is_found(content: Path, tree: Path) -> None:
    kernel(content, "top")
    written(content, tree)
    assert b'"/cache/top.json"' in (tree / "__grp__top.json").read_bytes()


def test_a_group_that_cannot_be_hit_hides_the_original(content: Path, tree: Path) -> None:
    (content / "K" / "add.json").unlink()
    assert written(content, tree) == RewriteCounts(rewritten=1, incomplete=1)
    assert (tree / "K" / "__grp__add.json").read_bytes() == MISS


def test_a_huge_group_is_not_read_to_its_end(content: Path, tree: Path) -> None:
    with (content / "K" / "__grp__add.json").open("wb") as file:
        file.truncate(1 << 40)
    assert written(content, tree).incomplete == 1


def test_a_directory_with_the_name_of_a_group_is_hidden_with_all_that_is_in_it(content: Path, tree: Path) -> None:
    kernel(content / "K" / "__grp__evil.json")
    assert written(content, tree) == RewriteCounts(rewritten=2, incomplete=1)
    assert (tree / "K" / "__grp__evil.json").read_bytes() == MISS


def test_a_child_that_is_a_directory_is_no_child(content: Path, tree: Path) -> None:
    (content / "K" / "add.json").unlink()
    (content / "K" / "add.json").mkdir()
    assert written(content, tree).incomplete == 1


def test_groups_in_a_directory_whose_name_cannot_be_printed_are_misses(content: Path, tree: Path) -> None:
    for name in (b"\xff", b"a\nb", b"\x1b[31m"):
        directory = os.fsdecode(name)
        kernel(content / directory)
    assert written(content, tree) == RewriteCounts(rewritten=4, incomplete=3)


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def link_outside(path: Path) -> None:
    path.symlink_to("/etc")


def link_inside(path: Path) -> None:
    path.symlink_to("K")


def link_to_nothing(path: Path) -> None:
    path.symlink_to("nothing")


@pytest.mark.parametrize("make", [make_fifo, make_socket, link_outside, link_inside, link_to_nothing])
@pytest.mark.parametrize("name", ["K/x", "K/__grp__x.json", "vllm_compile_cache.py", "L"])
def test_content_that_no_sealed_entry_holds_is_refused(content: Path, tree: Path, name: str, make: object) -> None:
    assert callable(make)
    make(content / name)
    with pytest.raises(Unrelocatable, match="no file and no directory"):
        written(content, tree)


def test_a_group_replaced_by_a_link_during_the_walk_is_not_followed(
    content: Path, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swap(*arguments: object) -> RewriteResult:
        raise AssertionError(arguments)

    monkeypatch.setattr(triton, "rewritten", swap)
    listed = tree_writer._Walk._listed

    def then_swapped(walk: tree_writer._Walk, descriptor: int, relative: str) -> tree_writer._Listing:
        found = listed(walk, descriptor, relative)
        if relative == "K":
            group = content / "K" / "__grp__add.json"
            group.rename(tmp_path / "elsewhere")
            group.symlink_to(tmp_path / "elsewhere")
        return found

    monkeypatch.setattr(tree_writer._Walk, "_listed", then_swapped)
    with pytest.raises(OSError, match="symbolic links"):
        written(content, tree)


def test_a_tree_deeper_than_a_cache_is_refused(content: Path, tree: Path) -> None:
    kernel(content.joinpath(*["d"] * 14))
    assert written(content, tree).rewritten == 2
    kernel(content.joinpath(*["d"] * 20))
    with pytest.raises(Unrelocatable, match="too deep"):
        written(content, tree.with_name("other"))


def test_a_path_longer_than_in_a_cache_is_refused(content: Path, tree: Path) -> None:
    kernel(content.joinpath(*["d" * 250] * 5))
    with pytest.raises(Unrelocatable, match="too deep"):
        written(content, tree)


@pytest.mark.parametrize(
    ("bound", "said"), [("MAX_ENTRIES", "files and directories"), ("MAX_REWRITTEN", "contain paths")]
)
def test_more_than_any_cache_has_is_refused(
    content: Path, tree: Path, bound: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel(content / "K2")
    kernel(content / "K3")
    monkeypatch.setattr(tree_writer, bound, 2)
    with pytest.raises(Unrelocatable, match=f"more than 2 .*{said}"):
        written(content, tree)


def test_small_files_that_a_mount_path_makes_large_are_refused(
    tmp_path: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100,000 of them filled the disk of a node with 6 GB, beside the budget of the store."""
    monkeypatch.setattr(tree_writer, "MAX_REWRITTEN_BYTES", 1 << 20)
    top = tmp_path / "content"
    top.mkdir()
    for number in range(64):
        (top / str(number)).touch()
    group = json.dumps({"child_paths": list(map(str, range(64)))})
    for number in range(20):
        (top / f"__grp__{number}.json").write_text(group)
    with pytest.raises(Unrelocatable, match="more than 1048576 bytes"):
        written(top, tree, MountPath("/" + "/".join(["d" * 200] * 5)))


def test_thousands_of_groups_in_one_directory_are_all_rewritten(tmp_path: Path, tree: Path) -> None:
    top = tmp_path / "content"
    top.mkdir()
    (top / "k.json").touch()
    for number in range(2_000):
        (top / f"__grp__{number}.json").write_bytes(b'{"child_paths": {"k.json": "/etc/passwd"}}')
    assert written(top, tree) == RewriteCounts(rewritten=2_000, incomplete=0)
    assert set(files_below(tree).values()) == {b'{"child_paths": {"k.json": "/cache/k.json"}}\n'}


@pytest.mark.parametrize("page_bytes", [4096, 65536])
def test_memory_is_counted_in_pages_of_this_kernel(
    content: Path, tree: Path, monkeypatch: pytest.MonkeyPatch, page_bytes: int
) -> None:
    monkeypatch.setattr(tree_writer, "getpagesize", lambda: page_bytes)
    # The top, the directory of the kernel and its one file are inodes of 1 KiB; the file is smaller than a page.
    assert written(content, tree).memory_bytes == 3 * 1024 + page_bytes


def test_nothing_is_written_to_the_content(content: Path, tree: Path) -> None:
    before = files_below(content)
    written(content, tree)
    assert files_below(content) == before
