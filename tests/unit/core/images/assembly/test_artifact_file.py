"""Files of torch.compiler.save_cache_artifacts(): the frame is parsed in bounds, the contents are passed over."""

import zlib
from collections.abc import Iterator

import pytest
from gkm.images.assembly import artifact_file
from gkm.images.assembly.artifact_file import (
    MAX_GROUPS,
    MAX_TEXT_BYTES,
    ArtifactKey,
    DamagedArtifactFile,
    NotAnArtifactFile,
    artifact_keys,
)
from hypothesis import given
from hypothesis import strategies as st
from support.images.inductor import artifact_file as framed

GROUPS = {"inductor": [("fone", b"a" * 300), ("ftwo", b"")], "aot_autograd": [("aone", b"pickle")]}
KEYS = [ArtifactKey("inductor", "fone"), ArtifactKey("inductor", "ftwo"), ArtifactKey("aot_autograd", "aone")]


def cut(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def with_checksum(body: bytes) -> bytes:
    return zlib.crc32(body).to_bytes(4) + body


@pytest.mark.parametrize("size", [1, 2, 3, 5, 17, 4096])
def test_keys_are_found_however_the_file_is_cut_into_pieces(size: int) -> None:
    assert artifact_keys(cut(framed(GROUPS), size)) == KEYS


def test_empty_pieces_change_nothing() -> None:
    data = framed(GROUPS)
    assert artifact_keys([b"", data[:2], b"", data[2:], b""]) == KEYS


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"abc",
        b"abcd",
        b"{}",
        b"\x7fELF" + bytes(60),
        framed(GROUPS, version=2),
        framed({"No Kind": [("k", b"")]}),
        bytes(4) + (1).to_bytes(8) + (8).to_bytes(8) + b"********",
        framed(GROUPS)[:20],
    ],
)
def test_another_file_is_recognized(data: bytes) -> None:
    with pytest.raises(NotAnArtifactFile):
        artifact_keys([data])


@pytest.mark.parametrize("missing", [1, 6, 7, 8, 30, 200])
def test_a_file_that_is_cut_off_is_damaged(missing: int) -> None:
    with pytest.raises(DamagedArtifactFile, match="cut off"):
        artifact_keys([framed(GROUPS)[:-missing]])


def test_a_changed_byte_is_found_by_the_checksum() -> None:
    data = bytearray(framed(GROUPS))
    data[-1] ^= 1
    with pytest.raises(DamagedArtifactFile, match="checksum"):
        artifact_keys([bytes(data)])


def test_bytes_behind_the_last_group_are_damage() -> None:
    with pytest.raises(DamagedArtifactFile, match="cut off"):  # they would begin another group
        artifact_keys([with_checksum(framed(GROUPS)[4:] + b"more")])


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("", "cannot be printed"),
        ("a\nb", "cannot be printed"),
        ("\x1b[2J", "cannot be printed"),
        ("x" * MAX_TEXT_BYTES, f"at most {MAX_TEXT_BYTES} is possible"),
    ],
)
def test_names_that_nobody_can_read_are_refused(key: str, problem: str) -> None:
    with pytest.raises(DamagedArtifactFile, match=problem):
        artifact_keys([framed({"inductor": [(key, b"")]})])


def test_a_length_that_no_file_has_ends_at_the_end_of_the_file() -> None:
    header = framed({"inductor": [("k", b"")]})[4:-8]
    with pytest.raises(DamagedArtifactFile, match="cut off"):
        artifact_keys([with_checksum(header + ((1 << 63) - 1).to_bytes(8))])
    with pytest.raises(DamagedArtifactFile, match="at most"):
        artifact_keys([with_checksum(header + ((1 << 64) - 1).to_bytes(8))])


def test_the_number_of_artifacts_is_bounded_over_all_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifact_file, "MAX_ARTIFACTS", 2)
    assert artifact_keys([framed({"inductor": [("one", b""), ("two", b"")]})])
    with pytest.raises(DamagedArtifactFile, match="it states 1 where at most 0"):
        artifact_keys([framed(GROUPS)])


def test_the_number_of_groups_is_bounded_because_empty_ones_cost_time_too() -> None:
    groups = framed({"inductor": []})[4:]
    body = groups + groups[8:] * (MAX_GROUPS - 1)
    assert artifact_keys([with_checksum(body)]) == []
    with pytest.raises(DamagedArtifactFile, match="more than 1000 groups"):
        artifact_keys([with_checksum(body + groups[8:])])


def test_many_small_artifacts_in_one_piece_take_time_by_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes are not copied for each artifact: a reader that copies the rest of the piece copies gigabytes here."""
    monkeypatch.setattr(artifact_file, "MAX_ARTIFACTS", 100_000)
    keys = artifact_keys([framed({"inductor": [("k", b"")] * 100_000})])
    assert len(keys) == 100_000


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_listed(data: bytes) -> None:
    for candidate in (data, with_checksum(data), with_checksum(framed(GROUPS)[4:] + data)):
        try:
            assert artifact_keys([candidate])[:3] == KEYS
        except (NotAnArtifactFile, DamagedArtifactFile):
            continue
