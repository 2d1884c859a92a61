"""Clients without credentials that send large bodies do not take the memory of the admission process."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.operator.deployment import Shelf, shelf
from support.operator.limited import MIB, Admission, admission

CLIENTS, BODY_BYTES = 200, 3_900_000
FLOOD_SECONDS = float(os.environ.get("GKM_FLOOD_SECONDS", "6"))
"""GKM_FLOOD_SECONDS=60 is the long form."""


@pytest.fixture
def images() -> Iterator[Shelf]:
    with shelf() as found:
        yield found


@contextmanager
def flooded(victim: Admission, clients: int, withheld: int) -> Iterator[None]:
    """Let clients send bodies until the block ends; all have connected, and some bodies were sent by then."""
    script = Path(__file__).parents[2] / "support" / "operator" / "flood.py"
    numbers = (victim.port, clients, BODY_BYTES, withheld)
    words = [sys.executable, str(script), *map(str, numbers)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as flood:
        assert flood.stdin is not None
        assert flood.stdout is not None
        try:
            yield
            assert flood.poll() is None
        finally:
            flood.stdin.close()
        assert flood.stdout.readline() == b"all have connected\n"
        assert int(flood.stdout.readline()) > 0


@pytest.mark.parametrize("withheld", [0, 1], ids=["whole", "without the last byte"])
@pytest.mark.parametrize("clients", [20, CLIENTS])
def test_admission_survives_clients_with_large_bodies_and_serves_others(
    images: Shelf, tmp_path: Path, clients: int, withheld: int
) -> None:
    image, _ = images.push("good")
    with admission(tmp_path / "admission", [images]) as victim:
        with flooded(victim, clients, withheld):
            end = time.monotonic() + FLOOD_SECONDS
            asked = 0
            while time.monotonic() < end or not asked:
                assert victim.ask(image, "honest")["allowed"]
                asked += 1
        assert victim.ask(image, "honest", padding=3 * MIB)["allowed"]
