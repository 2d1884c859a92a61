"""Real Triton's use of group files, and its hits on relocated ones: the reasons for each rule of relocation."""

import json
import shutil
from pathlib import Path

import pytest
from support.triton.cache import STAGES, TritonFailed, compiled, relocated, snapshot


def laid_over(cache: Path, place: Path, mount_path: Path | None = None) -> None:
    """Put the relocated files over the cache, as the mount shows them."""
    shutil.copytree(relocated(cache, mount_path or cache, place), cache, dirs_exist_ok=True)


def group_of(cache: Path) -> Path:
    (found,) = cache.glob("*/__grp__*")
    return found


def test_a_cache_where_it_was_built_is_a_hit(built: Path) -> None:
    before = snapshot(built)
    assert compiled(built).hit
    assert snapshot(built) == before


def test_a_cache_that_was_moved_is_a_miss(moved: Path) -> None:
    before = set(snapshot(moved))
    again = compiled(moved)
    assert not again.hit
    assert again.stages == STAGES
    assert set(snapshot(moved)) == before, "the same key, compiled again"


def test_a_cache_that_was_moved_and_rewritten_is_a_hit_and_nothing_is_compiled(moved: Path, tmp_path: Path) -> None:
    laid_over(moved, tmp_path / "place")
    before = snapshot(moved)
    again = compiled(moved)
    assert again.hit
    assert again.stages == []
    assert snapshot(moved) == before
    assert {Path(path).parent.parent for path in again.paths} == {moved}


def test_rewritten_for_another_path_it_is_a_miss(moved: Path, tmp_path: Path) -> None:
    laid_over(moved, tmp_path / "place", Path("/somewhere/else"))
    assert not compiled(moved).hit


def test_the_rewritten_kernel_is_the_one_that_was_built(filled: Path, moved: Path, tmp_path: Path) -> None:
    laid_over(moved, tmp_path / "place")
    assert compiled(moved).binary == compiled(filled).binary


def test_triton_opens_any_path_that_a_group_names_and_none_of_them_after_relocation(
    moved: Path, tmp_path: Path
) -> None:
    outside = shutil.copytree(group_of(moved).parent, tmp_path / "outside")
    names = json.loads(group_of(moved).read_text())["child_paths"]
    group_of(moved).write_text(json.dumps({"child_paths": {name: f"{outside}/{name}" for name in names}}))
    assert {Path(path).parent for path in compiled(moved).paths} == {outside}

    laid_over(moved, tmp_path / "place")
    again = compiled(moved)
    assert again.hit
    assert {Path(path).parent.parent for path in again.paths} == {moved}


def test_a_kernel_from_a_part_of_its_files_fails_so_such_a_group_becomes_a_miss(moved: Path, tmp_path: Path) -> None:
    laid_over(moved, tmp_path / "first")
    value = json.loads(group_of(moved).read_text())
    binary = value["child_paths"].pop("add.cubin")
    group = group_of(moved)
    group.chmod(0o644)
    group.write_text(json.dumps(value))
    with pytest.raises(TritonFailed, match="KeyError"):
        compiled(moved)

    value["child_paths"]["add.cubin"] = binary
    group.write_text(json.dumps(value))
    Path(binary).unlink()
    group_before = group.read_bytes()
    laid_over(moved, tmp_path / "second")
    assert group.read_bytes() != group_before
    assert compiled(moved).stages == STAGES
    assert compiled(moved).hit


def test_names_without_paths_fail_in_triton_and_are_repaired(moved: Path, tmp_path: Path) -> None:
    names = list(json.loads(group_of(moved).read_text())["child_paths"])
    group_of(moved).write_text(json.dumps({"child_paths": names}))
    with pytest.raises(TritonFailed, match="AttributeError"):
        compiled(moved)

    laid_over(moved, tmp_path / "place")
    assert compiled(moved).hit


def test_other_absolute_paths_in_a_cache_do_not_matter(moved: Path, tmp_path: Path) -> None:
    laid_over(moved, tmp_path / "place")
    (metadata,) = moved.glob("*/add.json")
    value = json.loads(metadata.read_text())
    assert value["extern_libs"][0][1].startswith("/")
    value["extern_libs"] = [["libdevice", "/nowhere/libdevice.10.bc"]]
    metadata.write_text(json.dumps(value))
    assert compiled(moved).hit
