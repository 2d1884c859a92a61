"""Four of the most expensive images at once, as many as the agent pulls, in a process with limited memory."""

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gkm.api.errors import Reason
from gkm.hoststate import trees
from gkm.images.manifest import OCI_MANIFEST
from gkm.images.pulling.extract import MAX_DIRECTORIES, MAX_FILES, MAX_MANIFEST_BYTES, MAX_PATHS_BYTES
from support.images import hostile_layers as made
from support.images.archives import content, image_of_layers
from support.images.hostile_layers import INSIDE
from support.registry.server import Registry as RealRegistry

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PULLS = 4
LIMIT_MIB = 400
PROCESS = Path(__file__).parents[2] / "support" / "images" / "pulls_process.py"
MEMORY = Path("/dev/shm")


@pytest.fixture
def state() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
    yield directory
    trees.remove(directory)


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


def pulled(state: Path, layer: bytes) -> dict[str, Any]:
    with RealRegistry.start() as real:
        refs = []
        for number in range(PULLS):
            image = image_of_layers(layer, labels={"number": str(number)})
            for blob in image.blobs:
                real.store.put_blob(f"team/{number}", content(blob))
            real.store.put_manifest(f"team/{number}", image.manifest, tag="1", media_type=OCI_MANIFEST)
            refs.append(f"{real.host}/team/{number}:1")
        command = [sys.executable, str(PROCESS), real.host, str(state), str(LIMIT_MIB), *refs]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_four_images_of_nothing_but_directories_are_refused_in_bounded_memory(state: Path) -> None:
    done = pulled(state, packed(directories()))
    assert done["results"] == [Reason.TOO_LARGE] * PULLS
    assert done["left"] == []
    assert done["peak"] <= LIMIT_MIB


def test_four_of_the_largest_images_are_pulled_in_bounded_memory(state: Path) -> None:
    done = pulled(state, packed(largest()))
    assert done["results"] == [f"{MAX_FILES - MAX_DIRECTORIES} files"] * PULLS
    assert done["left"] == []
    assert done["peak"] <= LIMIT_MIB
