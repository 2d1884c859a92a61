"""A full disk is said to be full, breaks nothing, and is over when there is room: on a real file system."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.agent.full_disk import SCENARIOS
from support.host.waiting import scaled
from support.peers import require

pytestmark = pytest.mark.mounts

TESTS = Path(__file__).parents[2]


def run(scenario: str, directory: Path) -> dict[str, int]:
    require.root()
    done = subprocess.run(
        [sys.executable, "-P", str(TESTS / "support" / "agent" / "full_disk.py"), scenario, str(directory)],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=scaled(240),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    outcome: dict[str, int] = json.loads(done.stdout)
    return outcome


@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name != "every_write"])
def test_on_a_full_disk(scenario: str, tmp_path: Path) -> None:
    assert run(scenario, tmp_path) == {}


def test_full_at_any_write_it_is_reported_and_recovers(tmp_path: Path) -> None:
    outcome = run("every_write", tmp_path)

    # Fewer would say that the writes were not seen, not that there are none.
    assert outcome["tried"] > 20
    assert outcome["reported"] > 15
