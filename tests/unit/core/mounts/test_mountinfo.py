"""Valid and invalid lines of mountinfo."""

from pathlib import Path

import pytest
from gkm.mounts import mountinfo
from gkm.mounts.mountinfo import Mount, TooManyMounts, parse
from hypothesis import given
from hypothesis import strategies as st

LINE = b"44 27 0:39 / /k/pods/t ro,nosuid,nodev,relatime shared:2 - overlay gkm:csi-1@sha256:00 ro,lowerdir=/a:/b"


def one(line: bytes) -> Mount:
    (mount,) = parse([line])
    return mount


def test_a_line_is_read() -> None:
    assert one(LINE) == Mount(root="/", point="/k/pods/t", kind="overlay", source="gkm:csi-1@sha256:00")


@pytest.mark.parametrize("optional", [b"", b"shared:2 ", b"shared:2 master:1 propagate_from:3 "])
def test_optional_fields_may_be_there_or_not(optional: bytes) -> None:
    line = LINE.replace(b"shared:2 ", optional)
    assert one(line).kind == "overlay"


def test_escapes_are_undone() -> None:
    line = LINE.replace(b"/k/pods/t", rb"/k/with\040space\011tab\012line\134back\043hash")
    assert one(line).point == "/k/with space\ttab\nline\\back#hash"


def test_a_backslash_that_was_escaped_is_not_undone_twice() -> None:
    assert one(LINE.replace(b"/k/pods/t", rb"/k/\134040")).point == "/k/\\040"


def test_a_name_that_is_not_utf8_survives() -> None:
    assert one(LINE.replace(b"/k/pods/t", b"/k/\xff")).point.encode(errors="surrogateescape") == b"/k/\xff"


@pytest.mark.parametrize("name", [b"a\\040-\\040b", b"-"])
def test_a_dash_in_a_name_is_no_separator(name: bytes) -> None:
    assert one(LINE.replace(b"/k/pods/t", b"/k/" + name)).kind == "overlay"


@pytest.mark.parametrize(
    "line",
    [b"", b" - ", b"1 2 3 - overlay x y", LINE.replace(b" - ", b" "), b"44 27 0:39 / /t ro - overlay", b"\xff" * 9],
)
def test_an_invalid_line_is_skipped(line: bytes) -> None:
    assert list(parse([line, LINE])) == [one(LINE)]


@given(st.lists(st.binary(max_size=80)))
def test_any_bytes_are_survived(lines: list[bytes]) -> None:
    list(parse(lines))


def test_a_file_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mountinfo, "MAX_BYTES", 10)
    path = tmp_path / "mountinfo"
    path.write_bytes(LINE)
    with pytest.raises(TooManyMounts):
        mountinfo.read(path)


def test_the_mounts_of_this_process_can_be_read() -> None:
    assert "/" in {mount.point for mount in mountinfo.read()}
