"""New trees of the store do not lie where deleted ones were, on file systems that can be asked for it."""

import subprocess
from pathlib import Path

import pytest
from gkm.hoststate import placement
from gkm.hoststate.layout import Layout


def file_system(path: Path) -> str:
    return subprocess.run(
        ["findmnt", "--noheadings", "--output", "FSTYPE", "--target", path], capture_output=True, text=True, check=True
    ).stdout.strip()


def flags(directory: Path) -> str:
    return subprocess.run(["lsattr", "-d", directory], capture_output=True, text=True, check=True).stdout.split()[0]


def test_on_ext4_each_extraction_gets_a_block_group_of_its_own(tmp_path: Path) -> None:
    if file_system(tmp_path) != "ext4":
        pytest.skip(f"{tmp_path} is on no ext4")
    layout = Layout(tmp_path / "state", tmp_path / "run")
    layout.make_directories()
    layout.make_directories()
    assert "T" in flags(layout.work)
    assert "e" in flags(layout.work)  # the other flags stay
    assert "T" not in flags(layout.trash)


def test_another_file_system_is_left_as_it_is() -> None:
    placement.spread(Path("/proc/self"))
    assert file_system(Path("/proc")) == "proc"


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        placement.spread(tmp_path / "missing")
