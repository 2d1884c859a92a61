"""Decompressors of isal and zstd: both bound each step, report the end, and return the bytes behind it."""

import gzip
import sys
from collections.abc import Callable

import pytest
from gkm.images.archives import compression

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Pack = Callable[[bytes], bytes]
TEXT = bytes(range(256)) * 4000
STEP = 1000


@pytest.fixture(params=[gzip.compress, zstd.compress], ids=["gzip", "zstd"])
def pack(request: pytest.FixtureRequest) -> Pack:
    packed: Pack = request.param
    return packed


def decompressor(packed: bytes) -> compression._Decompressor:
    make = compression._decompressor_factory(packed)
    assert make is not None
    return make()


def test_a_step_returns_at_most_its_bound_and_the_rest_later(pack: Pack) -> None:
    packed = pack(TEXT)
    source = decompressor(packed)
    chunks = [source.decompress(packed, STEP)]
    while not source.eof:
        assert not source.needs_input
        chunks.append(source.decompress(b"", STEP))
    assert max(map(len, chunks)) <= STEP
    assert b"".join(chunks) == TEXT


def test_a_cut_stream_needs_input_and_has_no_end(pack: Pack) -> None:
    packed = pack(TEXT)
    source = decompressor(packed)
    assert source.decompress(packed[:10], STEP) == b""
    assert source.needs_input
    assert not source.eof
    source.decompress(packed[10:], len(TEXT) + 1)
    assert source.eof


def test_the_bytes_behind_the_end_are_returned_untouched(pack: Pack) -> None:
    packed = pack(b"text")
    source = decompressor(packed)
    assert source.decompress(packed + b"behind", STEP) == b"text"
    assert source.eof
    assert source.unused_data == b"behind"


def test_damaged_data_raises_an_error_that_is_caught(pack: Pack) -> None:
    damaged = pack(TEXT)[:10] + b"\xff" * 64
    source = decompressor(damaged)
    with pytest.raises(compression._DECODE_ERRORS, match=r"Invalid deflate block|Data corruption detected"):
        source.decompress(damaged, STEP)


def test_bytes_of_neither_form_have_no_decompressor() -> None:
    assert compression._decompressor_factory(TEXT) is None
    assert compression._decompressor_factory(b"") is None
