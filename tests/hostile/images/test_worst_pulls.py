"""Four of the most expensive images at once, as many as the agent pulls, in a process with limited memory."""

import random
import sys
from pathlib import Path

from gkm.api.errors import Reason
from gkm.images.pulling.extract import MAX_DIRECTORIES, MAX_FILES, MAX_MANIFEST_BYTES, MAX_PATHS_BYTES
from support.images import hostile_layers as made
from support.images.hostile_layers import INSIDE
from support.images.limited_pulls import pulled, state

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["state"]

PULLS = 4
LIMIT_MIB = 400


def directories() -> bytes:
    """Return an archive with the maximum number of directories, and one file."""
    names = (random.Random(number).randbytes(40).hex() for number in range(MAX_FILES - 2))  # else it would be a bomb
    return made.archive(
        made.named(f"{INSIDE}f".encode()), *(made.named(f"{INSIDE}{name}".encode(), b"", kind=b"5") for name in names)
    )


def largest() -> bytes:
    """Return an archive at all bounds that cost memory: names, the bytes of paths, the description of entries."""
    length = MAX_PATHS_BYTES // MAX_FILES
    names = [f"{number}".ljust(length, "n") for number in range(MAX_FILES)]
    described = made.named(b"io.triton.manifest/manifest.json", random.Random(1).randbytes(MAX_MANIFEST_BYTES))
    return made.archive(
        described,
        *(made.named(f"{INSIDE}{name}".encode(), b"") for name in names[MAX_DIRECTORIES:]),
        *(made.named(f"{INSIDE}{name}".encode(), b"", kind=b"5") for name in names[:MAX_DIRECTORIES]),
    )


def packed(archive: bytes) -> bytes:
    """Return an archive with the largest allowed window, which the reader must allocate."""
    options: dict[int, int] = {zstd.CompressionParameter.window_log: 23, zstd.CompressionParameter.compression_level: 1}
    packer = zstd.ZstdCompressor(options=options)
    return packer.compress(archive) + packer.flush()


def test_four_images_of_nothing_but_directories_are_refused_in_bounded_memory(state: Path) -> None:
    done = pulled(state, [packed(directories())] * PULLS, LIMIT_MIB)
    assert done["results"] == [Reason.TOO_LARGE] * PULLS
    assert done["left"] == []
    assert done["peak"] <= LIMIT_MIB


def test_four_of_the_largest_images_are_pulled_in_bounded_memory(state: Path) -> None:
    done = pulled(state, [packed(largest())] * PULLS, LIMIT_MIB)
    assert done["results"] == [f"{MAX_FILES - MAX_DIRECTORIES} files"] * PULLS
    assert done["left"] == []
    assert done["peak"] <= LIMIT_MIB
