"""Layers of a few megabytes in 1,000,000 zstd frames or gzip members: a right result or an error, in bounded memory."""

import gzip
import random
import sys
from pathlib import Path

import pytest
from gkm.api.errors import Reason
from support.images.archives import tree
from support.images.hostile_layers import INSIDE
from support.images.limited_pulls import pulled, state

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["state"]

FRAMES = 1_000_000
MANY = 30_000
"""Of a hundred bytes each: more than any writer makes, and allowed."""
LIMIT_MIB = 160
"""Of mapped memory; a process that has imported the client maps half of it."""
FILES = {f"{number}.cubin": random.Random(number).randbytes(1_000_000) for number in range(3)}
ARCHIVE = tree(*((INSIDE + name, data) for name, data in FILES.items()))
ZSTD, GZIP = zstd.compress(ARCHIVE), gzip.compress(ARCHIVE, mtime=0)
SKIPPABLE = b"\x5e\x2a\x4d\x18\0\0\0\0"
"""A frame of no bytes that decoders skip (RFC 8878, 3.1.2)."""
ENDLESS = {
    "zstd frames of a zero behind a cache": ZSTD + zstd.compress(b"\0") * FRAMES,
    "gzip members of a zero behind a cache": GZIP + gzip.compress(b"\0", mtime=0) * FRAMES,
    "empty zstd frames behind a cache": ZSTD + zstd.compress(b"") * FRAMES,
    "empty gzip members behind a cache": GZIP + gzip.compress(b"", mtime=0) * FRAMES,
    "skippable frames behind a cache": ZSTD + SKIPPABLE * FRAMES,
    "empty zstd frames before a cache": zstd.compress(b"") * FRAMES + ZSTD,
    "skippable frames before a cache": SKIPPABLE * FRAMES + ZSTD,
}


def split(data: bytes, count: int) -> list[bytes]:
    """Return the data in this number of pieces, in order."""
    size = -(-len(data) // count)
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.mark.parametrize("layer", ENDLESS.values(), ids=ENDLESS)
def test_a_million_frames_are_refused_in_bounded_memory(layer: bytes, state: Path) -> None:
    done = pulled(state, [layer], LIMIT_MIB)
    assert done["results"] == [Reason.UNSAFE_CONTENT]
    assert done["left"] == []
    assert done["peak"] <= LIMIT_MIB


def test_a_skippable_frame_as_large_as_the_memory_is_skipped(state: Path) -> None:
    content = random.Random(0).randbytes(1 << 20) * LIMIT_MIB
    done = pulled(state, [SKIPPABLE[:4] + len(content).to_bytes(4, "little") + content + ZSTD], LIMIT_MIB)
    assert done["results"] == [f"{len(FILES)} files"]
    assert done["peak"] <= LIMIT_MIB


@pytest.mark.parametrize("pack", [zstd.compress, gzip.compress])
@pytest.mark.parametrize("empty", [False, True])
def test_a_cache_in_many_frames_arrives_as_it_was(
    pack: object,
    empty: bool,  # noqa: FBT001 -- a parameter
    state: Path,
) -> None:
    """Empty frames are between the others: MAX_EMPTY_MEMBERS counts those in a row."""
    assert callable(pack)
    between = pack(b"") if empty else b""
    frames = split(ARCHIVE, MANY)
    done = pulled(state, [b"".join(pack(frame) + between for frame in frames)], LIMIT_MIB)
    assert done["results"] == [f"{len(FILES)} files"]
    (content,) = state.glob("state/store/sha256/*/cache")
    assert {path.name: path.read_bytes() for path in content.iterdir()} == FILES
    assert done["peak"] <= LIMIT_MIB
