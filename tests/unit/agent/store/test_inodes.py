"""A disk that runs out of inodes is as full as one that runs out of bytes: kubelet evicts pods for either."""

import os
from pathlib import Path

import pytest
from gkm.api.config import Store
from gkm.api.errors import Reason
from gkm.hoststate.names import CacheRef
from gkm_agent.store.budget import SpaceFigures, SpaceNeed, lack
from support.agent.store_node import bounded, node_in, want

GIB = 1 << 30
KEEP = Store(min_free_percent=20)


@pytest.mark.parametrize(
    ("inodes", "short"),
    [(100.0, False), (20.0, False), (19.0, True), (0.0, True)],
)
def test_too_few_free_inodes_are_a_lack(inodes: float, short: bool) -> None:  # noqa: FBT001 -- a column
    figures = SpaceFigures(store=0, free=90 * GIB, total=100 * GIB, inodes=inodes)
    assert (lack(figures, SpaceNeed(), KEEP).bytes > 0) is short


def test_the_larger_lack_counts() -> None:
    figures = SpaceFigures(store=0, free=15 * GIB, total=100 * GIB, inodes=10.0)
    assert lack(figures, SpaceNeed(), KEEP).disk == 10 * GIB
    assert lack(figures, SpaceNeed(disk=30 * GIB), KEEP).disk == 35 * GIB


def test_without_a_free_share_inodes_never_lack() -> None:
    figures = SpaceFigures(store=0, free=GIB, total=100 * GIB, inodes=0.0)
    assert lack(figures, SpaceNeed(), Store(min_free_percent=0)).bytes == 0


def test_a_pull_waits_until_there_are_inodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = node_in(tmp_path)
    real = os.statvfs
    free = [3]

    def few(path: Path) -> os.statvfs_result:
        found = list(real(path))
        found[5:8] = [1000, free[0], free[0]]  # f_files, f_ffree, f_favail
        found[0:5] = [4096, 4096, 1 << 20, 1 << 20, 1 << 20]
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "statvfs", few)
    bounded(node, KEEP)
    want(node, "a")
    node.settle()
    said = node.pointer(CacheRef("ml-apps", "a"))
    assert said.reason == Reason.DISK_FULL
    assert "0.3 % of the disk's inodes are free, 20 % must stay free" in said.message

    free[0] = 900
    node.now += 700
    node.settle()

    assert node.pointer(CacheRef("ml-apps", "a")).state.value == "Ready"
