import gzip
import os
import random
from collections.abc import Iterator

import pytest
from gkm.images.archives import compression
from gkm.images.archives.compression import BLOCK_BYTES, deflated, inflated
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples

SOME = b"the same words again and again, " * 60_000 + random.Random(1).randbytes(BLOCK_BYTES)


def packed(data: bytes, piece: int = 1 << 16) -> bytes:
    return b"".join(deflated(data[at : at + piece] for at in range(0, len(data), piece)))


@given(st.binary(max_size=4096))
@settings(max_examples=examples(30))
def test_gzip_and_gkm_unpack_the_compressed_content(data: bytes) -> None:
    assert gzip.decompress(packed(data)) == data
    assert b"".join(inflated([packed(data)])) == data


def test_content_of_many_blocks_is_unpacked_whole() -> None:
    assert gzip.decompress(packed(SOME)) == SOME
    assert b"".join(inflated([packed(SOME)])) == SOME


@pytest.mark.parametrize("piece", [1000, BLOCK_BYTES - 1, BLOCK_BYTES, len(SOME)])
def test_the_output_does_not_depend_on_the_pieces_of_the_input(piece: int) -> None:
    assert packed(SOME, piece) == packed(SOME)


def test_the_number_of_processors_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    here = packed(SOME)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert packed(SOME) == here


def test_it_is_one_member_without_a_time_and_a_name() -> None:
    # RFC 1952 section 2.3: no flags, MTIME 0 means that no time is available, OS 255 is unknown.
    assert packed(SOME)[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"


def test_the_compressor_reads_content_only_as_fast_as_it_packs() -> None:
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield bytes(BLOCK_BYTES)

    parts = deflated(endless())
    for _ in range(3):
        next(parts)
    parts.close()  # type: ignore[attr-defined]
    assert taken <= compression.MAX_THREADS + 4


def test_an_error_of_the_source_reaches_the_consumer() -> None:
    def broken() -> Iterator[bytes]:
        yield b"x"
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        list(deflated(broken()))
