"""kill -9 of agents at random, beside the real CSI process that gives pods what is there and takes it away."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.agent.killed_beside_csi import CONVERGED_EVERY, NEEDS_CHANGE
from support.host.waiting import scaled
from support.peers import require

pytestmark = pytest.mark.mounts

TESTS = Path(__file__).parents[2]
KILLS = int(os.environ.get("GKM_KILLS", "40"))
"""1,000 take a quarter of an hour."""
SEED = int(os.environ.get("GKM_SEED", "20261"))
LIMIT_SECONDS = 120 + 12 * KILLS


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose name leaves room for that of a socket: the kernel takes 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="gkm-kills-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@pytest.mark.timeout(LIMIT_SECONDS + 30)
def test_killed_agents_lose_no_record_take_nothing_from_a_pod_and_leave_nothing_half(short: Path) -> None:
    require.root()
    print(f"GKM_SEED={SEED}")  # noqa: T201 -- pytest shows it when the test fails, as it does the outcome
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            str(TESTS / "support" / "agent" / "killed_beside_csi.py"),
            str(short / "m"),
            str(KILLS),
            str(SEED),
        ],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=scaled(LIMIT_SECONDS),
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    print(done.stdout)  # noqa: T201
    outcome = json.loads(done.stdout)
    assert outcome["violations"] == []
    assert outcome["kills"] == KILLS
    assert len(outcome["converged_seconds"]) == KILLS // CONVERGED_EVERY + 1
    # Otherwise nothing was tried.
    assert outcome["phases"].keys() >= NEEDS_CHANGE
    assert outcome["kubelet"]["published"] > KILLS // 4
    assert outcome["kubelet"]["unpublished"] >= outcome["kubelet"]["published"]
