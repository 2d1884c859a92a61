"""What pods left to the agent stays within its bounds, and nothing else is touched."""

import json
import os
from pathlib import Path

import pytest
from gkm.api.config import Capture
from gkm.hoststate.layout import Layout
from gkm_agent.store import captures as captured
from gkm_agent.store.captures import MAX_CAPTURES, CapturedVolume, CapturesInUse, to_prune

DAY = 86_400.0
NOW = 1_800_000_000.0


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout(tmp_path / "state", tmp_path / "run")
    made.captured.mkdir(parents=True)
    return made


def leave(layout: Layout, volume_id: str, days_ago: float, size: int) -> Path:
    place = layout.captured / volume_id
    (place / "content").mkdir(parents=True)
    (place / "content" / "kernel").write_bytes(b"x")
    (place / "captured.json").write_text(json.dumps({"bytes": size}))
    os.utime(place / "captured.json", (NOW - days_ago * DAY,) * 2)
    return place


@pytest.mark.parametrize(
    ("bounds", "gone"),
    [
        (Capture(), []),
        (Capture(retention=2.5 * DAY), ["three"]),
        (Capture(max_bytes=300), ["three"]),
        (Capture(max_bytes=299), ["two", "three"]),
        (Capture(max_bytes=99), ["one", "two", "three"]),
        (Capture(retention=1), ["one", "two", "three"]),
    ],
)
def test_the_oldest_go_first(bounds: Capture, gone: list[str]) -> None:
    kept = [
        CapturedVolume("three", NOW - 3 * DAY, 100),
        CapturedVolume("one", NOW - DAY, 100),
        CapturedVolume("two", NOW - 2 * DAY, 200),
    ]
    assert to_prune(kept, bounds, NOW) == gone


def test_only_captures_beyond_the_bounds_are_removed(layout: Layout) -> None:
    old, new = leave(layout, "csi-old", 8, 10), leave(layout, "csi-new", 1, 10)
    unfinished = layout.captured / ".tmp-csi-1"
    unfinished.mkdir()
    (layout.captured / "not ours").mkdir()

    captured.sweep(layout, Capture(), NOW, CapturesInUse())

    assert not old.exists()
    assert new.exists()
    assert sorted(path.name for path in layout.captured.iterdir()) == [".tmp-csi-1", "csi-new", "not ours"]


def test_a_description_that_cannot_be_read_stops_nothing(layout: Layout) -> None:
    old, strange = leave(layout, "csi-old", 8, 10), leave(layout, "csi-strange", 9, 10)
    (strange / "captured.json").write_text("[")
    captured.sweep(layout, Capture(), NOW, CapturesInUse())
    assert (old.exists(), strange.exists()) == (False, True)


def test_a_link_leads_nowhere(layout: Layout, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "captured.json").write_text('{"bytes": 1}')
    (layout.captured / "csi-link").symlink_to(theirs)
    captured.sweep(layout, Capture(retention=1), NOW, CapturesInUse())
    assert (theirs / "captured.json").exists()
    assert not list(layout.captured.iterdir())


def test_without_anything_captured_there_is_nothing_to_do(tmp_path: Path) -> None:
    captured.sweep(Layout(tmp_path / "state", tmp_path / "run"), Capture(), NOW, CapturesInUse())


def test_attempts_at_an_image_do_not_make_a_capture_younger(layout: Layout) -> None:
    old = leave(layout, "csi-old", 8, 10)
    (old / "progress.json").write_text("{}")
    captured.sweep(layout, Capture(), NOW, CapturesInUse())
    assert not old.exists()


def test_a_capture_in_use_goes_with_a_later_sweep(layout: Layout) -> None:
    old, in_use = leave(layout, "csi-old", 8, 10), CapturesInUse()
    with in_use.use("csi-old"):
        captured.sweep(layout, Capture(), NOW, in_use)
        assert old.exists()
    captured.sweep(layout, Capture(), NOW, in_use)
    assert not old.exists()
    assert [path.name.partition(".")[0] for path in layout.trash.iterdir()] == ["captured-csi-old"]


def test_captures_have_a_number_too() -> None:
    many = [CapturedVolume(f"csi-{number}", NOW - number, 1) for number in range(MAX_CAPTURES + 2)]
    assert to_prune(many, Capture(), NOW) == [f"csi-{MAX_CAPTURES}", f"csi-{MAX_CAPTURES + 1}"]


def test_records_of_failed_copies_remove_no_captured_files() -> None:
    files = [CapturedVolume(f"csi-{number}", NOW - DAY - number, 1) for number in range(MAX_CAPTURES - 1)]
    failed = [CapturedVolume(f"failed-{number}", NOW - number, 0) for number in range(3)]
    assert to_prune([*failed, *files], Capture(), NOW) == ["failed-1", "failed-2"]


def test_a_record_of_a_failed_copy_stays_where_the_captured_files_are_too_large() -> None:
    kept = [CapturedVolume("files", NOW, 2), CapturedVolume("failed", NOW - DAY, 0)]
    assert to_prune(kept, Capture(max_bytes=1), NOW) == ["files"]
