"""The mount of a pod whose new files are copied, and the copies."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from gkm.mounts import copy_changes
from gkm.mounts.copy_changes import CopyResult
from gkm.mounts.link_farm import MountedView
from support.host.descriptors import open_below

PLENTY = 1 << 30


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """The mount of a pod; the fixture checks that the copy closes its descriptors."""
    (tmp_path / "volume").mkdir()
    yield tmp_path / "volume"
    assert open_below(tmp_path) == []


@pytest.fixture
def below(tmp_path: Path) -> Path:
    (tmp_path / "below").mkdir()
    return tmp_path / "below"


def copied(volume: Path, *lowers: Path, most: int = PLENTY) -> CopyResult:
    return copied_to(volume.with_name("kept"), volume, lowers, most)


def copied_to(kept: Path, volume: Path, lowers: Sequence[Path], most: int) -> CopyResult:
    with ExitStack() as held:

        def opened(path: Path) -> int:
            descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY)
            held.callback(os.close, descriptor)
            return descriptor

        return copy_changes.copy_changes(MountedView(opened(volume)), [opened(lower) for lower in lowers], kept, most)


def kept_of(volume: Path) -> dict[bytes, bytes]:
    """Return the copied files, by names that need not be UTF-8."""
    top = os.fsencode(volume.with_name("kept"))
    found = {}
    for directory, _, names in os.walk(top):
        for name in names:
            path = os.path.join(directory, name)  # noqa: PTH118 -- bytes
            with open(path, "rb") as file:  # noqa: PTH123
                found[os.path.relpath(path, top)] = file.read()
    return found
