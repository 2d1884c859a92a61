"""kill -9 at every step of the agent on its disk, and what the next agent makes of what is left."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.agent.killed_agent import SCENARIOS
from support.host.waiting import scaled

TESTS = Path(__file__).parents[2]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_anywhere_it_leaves_nothing_half_and_the_next_one_finishes(scenario: str, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-P", str(TESTS / "support" / "agent" / "killed_agent.py"), scenario, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=scaled(240),
        check=False,
    )

    assert result.returncode == 0, result.stderr[-3000:]
    outcome = json.loads(result.stdout)
    assert outcome["wrong"] == []
    assert outcome["kills"] > 20
