"""The space that captures may take, on disks of which `statvfs` reports other figures than this machine's."""

import os
from pathlib import Path

import pytest
from gkm.hoststate.disk_space import spare_bytes

BLOCK = 4096


@pytest.mark.parametrize(
    ("free", "percent", "spare"),
    [
        ((500, 500), 20, 300 * BLOCK),
        ((500, 500), 0, 500 * BLOCK),
        ((500, 500), 12.5, 375 * BLOCK),
        ((200, 500), 20, 0),
        ((199, 500), 20, 0),
        ((0, 500), 0, 0),
        ((500, 199), 20, 0),
        ((500, 200), 20, 300 * BLOCK),
        ((500, 0), 0, 500 * BLOCK),
    ],
)
def test_a_part_of_the_disk_stays_free(
    free: tuple[int, int], percent: float, spare: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks, inodes = free
    disk = os.statvfs_result((BLOCK, BLOCK, 1000, blocks + 50, blocks, 1000, inodes, inodes, 0, 255))
    monkeypatch.setattr(os, "statvfs", {tmp_path: disk}.__getitem__)
    assert spare_bytes(tmp_path, percent) == spare


def test_a_file_system_without_a_count_of_inodes_has_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Btrfs reports 0 inodes, of which 0 are free."""
    disk = os.statvfs_result((BLOCK, BLOCK, 1000, 500, 500, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", {tmp_path: disk}.__getitem__)
    assert spare_bytes(tmp_path, 20) == 300 * BLOCK
