import gzip
import random
import sys
from collections.abc import Callable

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.images.archives import compression
from gkm.images.archives.compression import JOINED_BYTES, STEP_BYTES, inflated

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Pack = Callable[[bytes], bytes]
TEXT = random.Random(7).randbytes(3000) * 500


def skippable(content: bytes, number: int = 0, stated: int | None = None) -> bytes:
    """Return a frame that decoders skip (RFC 8878, 3.1.2), of the 16 magic numbers that with `number`."""
    size = len(content) if stated is None else stated
    return bytes([0x50 + number]) + b"\x2a\x4d\x18" + size.to_bytes(4, "little") + content


def by_pzstd(*frames: bytes) -> bytes:
    """Return frames as pzstd writes them: before each, a skippable frame with its size."""
    return b"".join(skippable(len(frame).to_bytes(4, "little")) + frame for frame in frames)


def parts(data: bytes, step: int = 4096) -> list[bytes]:
    return [data[start : start + step] for start in range(0, len(data), step)]


@pytest.mark.parametrize(
    "packed",
    [
        TEXT,
        gzip.compress(TEXT),
        gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:]),
        zstd.compress(TEXT),
        zstd.compress(TEXT[:1000]) + zstd.compress(TEXT[1000:]),
        by_pzstd(zstd.compress(TEXT[:1000]), zstd.compress(TEXT[1000:])),
        *(skippable(b"a note", number) + zstd.compress(TEXT) for number in (1, 15)),
        skippable(skippable(b"no frame"), 3) + zstd.compress(TEXT),
        skippable(bytes(1 << 20)) + zstd.compress(TEXT),
    ],
    ids=[
        "plain",
        "gzip",
        "gzip members",
        "zstd",
        "zstd frames",
        "pzstd",
        "skippable frame 1",
        "skippable frame 15",
        "skippable frame in another",
        "large skippable frame",
    ],
)
@pytest.mark.parametrize("step", [1000, 65536, 10_000_000])
def test_a_layer_is_decompressed_whatever_it_is_packed_with(packed: bytes, step: int) -> None:
    chunks = list(inflated(parts(packed, step)))
    assert b"".join(chunks) == TEXT
    assert packed is TEXT or max(map(len, chunks)) <= STEP_BYTES


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_small_members_travel_together_and_large_chunks_as_they_are(pack: Pack) -> None:
    pieces = [TEXT[:JOINED_BYTES], b"c", TEXT, b"d"]
    chunks = list(inflated([pack(b"ab" * 10) * 5_000 + b"".join(map(pack, pieces))]))
    assert all(chunks)
    assert b"".join(chunks) == b"ab" * 50_000 + b"".join(pieces)
    assert len(chunks) <= 7  # 64 KiB, the rest of 100,000 bytes, the large one, "c", two steps, "d"
    assert max(map(len, chunks)) <= STEP_BYTES


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_a_bomb_is_stopped_long_before_its_end(pack: Pack) -> None:
    bomb = pack(bytes(64 << 20))
    chunks: list[int] = []
    with pytest.raises(GKMError, match="bomb") as caught:
        chunks.extend(map(len, inflated(parts(bomb))))
    assert caught.value.reason is Reason.UNSAFE_CONTENT
    assert sum(chunks) < 32 << 20


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_a_cut_layer_is_refused(pack: Pack) -> None:
    with pytest.raises(GKMError) as caught:
        list(inflated(parts(pack(TEXT)[:-5])))
    assert caught.value.reason is Reason.CONTENT_MISMATCH


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (skippable(b"x", stated=0xFFFFFFFF) + zstd.compress(TEXT), "ends in the middle of its compressed data"),
        (skippable(b"x")[:6], "ends in the middle of its compressed data"),
        (skippable(b"x") + b"neither a frame nor a note", "cannot be decompressed"),
        (skippable(b"x") + gzip.compress(TEXT), "cannot be decompressed"),
        (skippable(b"") * 100_000 + zstd.compress(TEXT), "empty or tiny compressed pieces"),
    ],
    ids=["more than the layer has", "cut", "other bytes behind it", "gzip behind it", "thousands"],
)
def test_skippable_frames_before_no_content_are_refused(layer: bytes, reason: str) -> None:
    with pytest.raises(GKMError, match=reason):
        list(inflated(parts(layer)))


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_a_damaged_layer_is_refused(pack: Pack) -> None:
    data = bytearray(pack(TEXT))
    data[len(data) // 2] ^= 0xFF
    with pytest.raises(GKMError) as caught:
        list(inflated(parts(bytes(data) + b"garbage behind the end")))
    assert caught.value.reason is Reason.CONTENT_MISMATCH


def test_a_frame_that_wants_a_huge_window_is_refused() -> None:
    options: dict[int, int] = {
        zstd.CompressionParameter.window_log: 30,
        zstd.CompressionParameter.enable_long_distance_matching: 1,
    }
    compressor = zstd.ZstdCompressor(options=options)
    data = compressor.compress(b"x" * (1 << 20)) + compressor.flush()
    with pytest.raises(GKMError, match="more memory than"):
        list(inflated([data]))


def test_the_window_that_every_decoder_has_is_enough() -> None:
    options: dict[int, int] = {zstd.CompressionParameter.window_log: 23}
    compressor = zstd.ZstdCompressor(options=options)
    data = compressor.compress(TEXT) + compressor.flush()
    assert b"".join(inflated([data])) == TEXT


@pytest.mark.parametrize("empty", [b"\x50\x2a\x4d\x18\0\0\0\0", zstd.compress(b"")])
def test_a_layer_of_empty_frames_is_refused(empty: bytes) -> None:
    with pytest.raises(GKMError, match="empty or tiny compressed pieces") as caught:
        list(inflated(parts(zstd.compress(b"x") + empty * 100_000)))
    assert caught.value.reason is Reason.UNSAFE_CONTENT


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_a_layer_of_tiny_pieces_is_refused(pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "MAX_MEMBERS", 100)
    assert b"".join(inflated(parts(pack(b"x") * 100))) == b"x" * 100
    large = pack(bytes(compression.MEMBER_BYTES))
    assert sum(map(len, inflated(parts((pack(b"x") + large) * 80)))) == 80 * (1 + compression.MEMBER_BYTES)
    with pytest.raises(GKMError, match="empty or tiny compressed pieces") as caught:
        list(inflated(parts(pack(b"x") * 102)))
    assert caught.value.reason is Reason.UNSAFE_CONTENT
