"""`gkm exec --list` and `--prune` in a store with several caches, of which programs use some."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from gkm.hoststate import locks
from gkm.images.pulling import entry
from gkm.images.pulling.entry import FileList, ListedFile
from gkm_cli.cache.run_store import RunStore
from support.cli.command import gkm
from support.host.descriptors_used_up import descriptors_used_up

MIB = 1 << 20
OLD, MIDDLE, NEW = (f"sha256:{letter * 64}" for letter in "abc")
IMAGE = "registry.example/team/caches/llama:1"
LAST_USE = {OLD: "2026-01-01T00:00:00Z", MIDDLE: "2026-01-02T00:00:00Z", NEW: "2026-01-03T00:00:00Z"}
FIRST_DAY = 1_767_225_600
"""2026-01-01, in seconds since 1970."""
DAY = 86_400


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    """A store with three caches of 1 MiB, each used one day after the one before."""
    made = RunStore(tmp_path / "store")
    made.make()
    for number, digest in enumerate((OLD, MIDDLE, NEW)):
        add(made, digest, FIRST_DAY + number * DAY)
    return made


def add(store: RunStore, digest: str, last_use: int) -> None:
    work = store.layout.work / "pull"
    (work / entry.CONTENT).mkdir(parents=True)
    (work / entry.CONTENT / "kernel").write_bytes(bytes(MIB))
    entry.publish(store.layout, work, FileList(digest, "triton", MIB, [ListedFile("kernel", MIB, "0" * 64)]), b"{}")
    lock = store.layout.entry_lock(digest)
    lock.touch()
    os.utime(lock, (last_use, last_use))


def run(store: RunStore, *options: str) -> Any:  # noqa: ANN401 -- JSON
    done = gkm("exec", *options, "--store", store.layout.state, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def listed(store: RunStore) -> list[str]:
    return [each["digest"] for each in run(store, "--list")]


def test_the_list_has_size_image_and_last_use_of_each_the_last_used_first(store: RunStore) -> None:
    store.note(MIDDLE, IMAGE)
    with locks.shared(store.layout.entry_lock(NEW)):
        found = run(store, "--list")
    assert [each["digest"] for each in found] == [NEW, MIDDLE, OLD]
    assert {each["digest"]: each["lastUse"] for each in found} == LAST_USE
    assert {each["digest"]: each["image"] for each in found} == {NEW: "", MIDDLE: IMAGE, OLD: ""}
    assert [each["inUse"] for each in found] == [True, False, False]
    assert {(each["sizeBytes"], each["files"]) for each in found} == {(MIB, 1)}


def test_people_see_one_line_for_each_cache(store: RunStore) -> None:
    store.note(OLD, f"{IMAGE}\x1b[2J")
    lines = gkm("exec", "--list", "--store", store.layout.state).stdout.splitlines()
    assert lines[0].split("  ")[0] == "DIGEST"
    assert [line.split()[0] for line in lines[1:]] == ["c" * 12, "b" * 12, "a" * 12]
    assert "1.0 MiB" in lines[1]
    assert lines[3].endswith(f"no      {IMAGE}\\x1b[2J")


def test_prune_removes_the_caches_that_no_program_uses(store: RunStore) -> None:
    with locks.shared(store.layout.entry_lock(MIDDLE)):
        result = run(store, "--prune")
    assert result == {"removed": [OLD, NEW], "freedBytes": 2 * MIB, "kept": 1, "inUse": 1}
    assert listed(store) == [MIDDLE]
    assert run(store, "--prune")["removed"] == [MIDDLE]
    assert listed(store) == []


@pytest.mark.parametrize(
    ("keep_mib", "removed"), [(3, []), (2.5, [OLD]), (2, [OLD]), (1, [OLD, MIDDLE]), (0.5, [OLD, MIDDLE, NEW])]
)
def test_prune_keeps_the_last_used_caches_up_to_a_size(store: RunStore, keep_mib: float, removed: list[str]) -> None:
    assert run(store, "--prune", "--keep", str(keep_mib / 1024))["removed"] == removed


def test_a_damaged_cache_is_named_and_pruned_whatever_is_kept(store: RunStore) -> None:
    (store.layout.entry(NEW) / entry.FILE_LIST).unlink()
    damage = {each["digest"]: each["damage"] for each in run(store, "--list")}
    assert "the entry has no files.json" in damage[NEW]
    assert (damage[OLD], damage[MIDDLE]) == ("", "")
    assert "damaged" in gkm("exec", "--list", "--store", store.layout.state).stdout
    assert run(store, "--prune", "--keep", "1")["removed"] == [NEW]
    assert listed(store) == [MIDDLE, OLD]


def test_a_record_that_is_no_reference_is_shown_as_unknown(store: RunStore) -> None:
    (store.layout.entry(OLD) / "reference").write_bytes(b"\xff")
    (store.layout.entry(NEW) / "reference").write_bytes(b"x" * 5000)
    (store.layout.entry(MIDDLE) / "reference").symlink_to("/etc/hostname")
    assert {each["image"] for each in run(store, "--list")} == {""}


def test_without_a_store_there_is_no_cache_and_no_store_is_made(tmp_path: Path) -> None:
    for option, text in (
        ("--list", "no caches in "),
        ("--prune", "removed 0 caches, 0.0 MiB; 0 caches left, 0 in use"),
    ):
        done = gkm("exec", option, "--store", tmp_path / "none")
        assert (done.returncode, done.stdout.startswith(text)) == (0, True), done
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("name", ["other", "f" * 64 + "0"])
def test_what_is_no_cache_is_left_alone(store: RunStore, name: str) -> None:
    (store.layout.store / name).mkdir()
    assert run(store, "--prune")["removed"] == [OLD, MIDDLE, NEW]
    assert (store.layout.store / name).is_dir()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "there is no program"),
        (["--cache", IMAGE], "there is no program"),
        (["--list", "--prune"], "--list and --prune exclude each other"),
        (["--prepare", "--cache", IMAGE, "--", "true"], "--prepare and a program exclude each other"),
        (["--prepare"], "--cache names no image"),
        (["--", "true"], "--cache names no image"),
        (["--list", "--cache", IMAGE], "--cache has no effect with --list"),
        (["--list", "--keep", "1"], "--keep is for --prune"),
        (["--cache", IMAGE, "-o", "json", "--", "true"], "--output has no effect with a program"),
    ],
)
def test_options_without_an_effect_are_wrong_usage(tmp_path: Path, words: list[str], why: str) -> None:
    done = gkm("exec", "--store", tmp_path / "store", *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"error: {why}; ")


def test_prune_removes_no_cache_that_cannot_be_read_now(store: RunStore) -> None:
    path = store.layout.entry(OLD)
    with descriptors_used_up(path / entry.FILE_LIST), pytest.raises(OSError, match="Too many open files"):
        store.prune(1 << 30)
    assert path.exists(), "a sound cache counts as damaged"
