"""Marks of this driver's mounts, and devices that only resemble them."""

from dataclasses import replace

import pytest
from gkm.mounts.mountinfo import Mark, MarkedMount, Mount, mark_of, marked_mounts

MARK = Mark("csi-1", "sha256:00ff")
OURS = Mount(root="/", point="/k/t", kind="overlay", source="gkm:csi-1@sha256:00ff")


def test_a_mark_is_read_as_it_was_written() -> None:
    assert Mark.parse(str(MARK)) == MARK


def test_our_mounts_are_found_among_others() -> None:
    others = [replace(OURS, source="overlay"), Mount("/", "/", "ext4", "/dev/vda")]
    assert list(marked_mounts([others[0], OURS, others[1]])) == [MarkedMount("/k/t", MARK)]


@pytest.mark.parametrize(
    "source",
    [
        "",
        "overlay",
        "gkm:",
        "gkm:csi-1",
        "gkm:@sha256:00",
        "gkm:csi-1@",
        "gkm:a/b@sha256:00",
        "gkm:csi-1@sha256:XY",
        "gkm:csi-1@sha256:00\n",
        " gkm:csi-1@sha256:00",
        "gkm:csi-1@sha256:00@sha256:00",
        "gkm:" + "x" * 129 + "@sha256:00",
        "gkm:é@sha256:00",
    ],
)
def test_a_foreign_device_is_not_a_mark(source: str) -> None:
    assert Mark.parse(source) is None


@pytest.mark.parametrize("other", [replace(OURS, kind="ext4"), replace(OURS, root="/sub")])
def test_another_kind_and_a_bind_of_a_part_are_not_ours(other: Mount) -> None:
    assert mark_of(other) is None
