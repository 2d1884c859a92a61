"""Pulls of hostile layers in a child process with limited memory, all at once."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from gkm.hoststate import trees
from gkm.images.manifest import OCI_MANIFEST
from support.images.archives import content, image_of_layers
from support.registry.server import Registry

PROCESS = Path(__file__).with_name("pulls_process.py")
MEMORY = Path("/dev/shm")


@pytest.fixture
def state() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
    yield directory
    trees.remove(directory)


def pulled(state: Path, layers: Sequence[bytes], limit_mib: int) -> dict[str, Any]:
    """Pull an image of each layer: {results: of each pull, peak: resident MiB, left: of the working directories}."""
    with Registry.start() as real:
        refs = []
        for number, layer in enumerate(layers):
            image = image_of_layers(layer, labels={"number": str(number)})
            for blob in image.blobs:
                real.store.put_blob(f"team/{number}", content(blob))
            real.store.put_manifest(f"team/{number}", image.manifest, tag="1", media_type=OCI_MANIFEST)
            refs.append(f"{real.host}/team/{number}:1")
        command = [sys.executable, str(PROCESS), real.host, str(state), str(limit_mib), *refs]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result
