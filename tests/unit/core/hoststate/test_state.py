"""Pointers, records, usage and locks: the files by which two processes communicate."""

import fcntl
import json
from dataclasses import replace
from pathlib import Path

import pytest
from gkm.hoststate import locks, pointers, records, usage
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.locks import LockBusy
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer
from gkm.hoststate.records import VolumeRecord
from gkm.hoststate.usage import VolumeUse

DIGEST = "sha256:" + "a" * 64
REF = CacheRef("ml-apps", "llama")
POINTER = Pointer(REF, "registry.example/llama:1", CacheState.READY, DIGEST, size_bytes=7, driver_version="580.1")
RECORD = VolumeRecord("csi-1", "/target", "pod-a", "ml-apps", "uid-a", REF, DIGEST, 80608, "2025-07-08T12:40:00Z")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "state", tmp_path / "run")
    layout.make_directories()
    return layout


@pytest.mark.parametrize("ref", [REF, CacheRef(None, "shared")])
def test_a_pointer_is_read_as_it_was_written(layout: Layout, ref: CacheRef) -> None:
    pointer = replace(POINTER, ref=ref)
    pointers.save(layout, pointer)
    assert pointers.load(layout, ref) == pointer
    assert list(pointers.refs(layout)) == [ref]


def test_a_pointer_that_was_removed_leaves_no_directory(layout: Layout) -> None:
    pointers.save(layout, POINTER)
    pointers.remove(layout, REF)
    pointers.remove(layout, REF)
    assert pointers.load(layout, REF) is None
    assert not list(layout.caches.iterdir())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"state": "Fine"}, "'Fine' is not a valid CacheState"),
        ({"digest": "../../etc"}, "'../../etc' cannot be the name of a digest"),
        ({"digest": None}, "'None' cannot be the name of a digest"),
        ({"progress": "much"}, "int.*'much'"),
        ({"image": None, "state": None}, "None is not a valid CacheState"),
    ],
)
def test_an_invalid_pointer_is_refused(layout: Layout, change: dict[str, object], problem: str) -> None:
    pointers.save(layout, POINTER)
    path = layout.pointer(REF)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UnreadableState, match=problem):
        pointers.load(layout, REF)


def test_directories_that_we_did_not_make_are_passed_over(layout: Layout) -> None:
    (layout.caches / "NOT" / "ours").mkdir(parents=True)
    (layout.caches / "NOT" / "ours" / "cache.json").write_text("{}")
    (layout.caches / "a-file").touch()
    (layout.caches / "ml-apps" / "without-a-pointer").mkdir(parents=True)
    (layout.caches / "ml-apps" / "file").touch()
    assert list(pointers.refs(layout)) == []


def test_a_record_is_read_as_it_was_written(layout: Layout) -> None:
    records.save(layout, RECORD)
    assert records.load(layout, "csi-1") == RECORD
    assert list(records.load_all(layout)) == [RECORD]
    records.remove(layout, "csi-1")
    records.remove(layout, "csi-1")
    assert not list(layout.volumes.iterdir())


def test_a_stray_file_does_not_prevent_the_removal_of_a_record(layout: Layout) -> None:
    records.save(layout, RECORD)
    stray = layout.volume_record("csi-1").with_name("stray")
    stray.touch()

    records.remove(layout, "csi-1")

    assert list(records.load_all(layout)) == []
    assert stray.exists()


def test_every_volume_with_a_directory_is_named(layout: Layout) -> None:
    records.save(layout, RECORD)
    (layout.volumes / "csi-without-a-record").mkdir()
    (layout.volumes / "not a volume").mkdir()

    assert list(records.volume_ids(layout)) == ["csi-1", "csi-without-a-record"]


def test_unlistable_records_are_an_error(layout: Layout) -> None:
    layout.volumes.rmdir()

    with pytest.raises(FileNotFoundError):
        list(records.load_all(layout))


def test_unlistable_pointers_are_an_error(layout: Layout) -> None:
    layout.caches.rmdir()

    with pytest.raises(FileNotFoundError):
        list(pointers.refs(layout))


def test_one_unreadable_record_stops_the_listing(layout: Layout) -> None:
    records.save(layout, RECORD)
    layout.volume_record("csi-1").write_text("{")
    with pytest.raises(UnreadableState, match="not JSON"):
        list(records.load_all(layout))


def test_a_record_whose_options_are_no_object_is_refused(layout: Layout) -> None:
    """The error was none of those by which the listing says that it is not complete."""
    records.save(layout, RECORD)
    path = layout.volume_record("csi-1")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"options": ["private"]}))
    with pytest.raises(UnreadableState, match="'list' object has no attribute 'get'"):
        records.load(layout, "csi-1")


def test_a_record_of_another_volume_is_refused(layout: Layout) -> None:
    records.save(layout, RECORD)
    layout.volume_record("csi-1").parent.rename(layout.volumes / "csi-2")
    with pytest.raises(UnreadableState, match="the record names another volume:"):
        records.load(layout, "csi-2")


def test_usage_has_the_shape_of_the_design_document(layout: Layout) -> None:
    usage.write(layout, REF, [VolumeUse.from_record(RECORD)])
    assert json.loads(layout.usage_file(REF).read_text()) == {
        "pod-a": [
            {
                "podName": "pod-a",
                "podNamespace": "ml-apps",
                "volumeId": "csi-1",
                "volumeSize": 80608,
                "targetPath": "/target",
                "startTime": "2025-07-08T12:40:00Z",
            }
        ]
    }


def test_a_cache_without_use_has_no_usage_file(layout: Layout) -> None:
    usage.write(layout, REF, [VolumeUse.from_record(RECORD)])
    usage.write(layout, REF, [])
    assert not list(layout.usage.iterdir())


def test_publishes_share_a_lock_and_exclude_collection(layout: Layout) -> None:
    lock = layout.entry_lock(DIGEST)
    with locks.shared(lock), locks.shared(lock), pytest.raises(LockBusy), locks.exclusive(lock):
        pass
    with locks.exclusive(lock), pytest.raises(LockBusy), locks.shared(lock):
        pass


def test_a_lock_file_that_was_removed_meanwhile_is_no_lock(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = layout.entry_lock(DIGEST)
    flock = fcntl.flock

    def removed_first(descriptor: int, operation: int) -> None:
        lock.unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", removed_first)
    with pytest.raises(LockBusy), locks.shared(lock):
        pass
