"""Admission's view of a large cluster fits its container (docs/decisions/0015-admission-reads.md)."""

import json
import subprocess
import sys
from pathlib import Path

from support.host.waiting import scaled

MIB = 1 << 20
SETS, REPLICAS = 10_000, 2


def test_ten_thousand_sets_and_their_domains_take_little_memory() -> None:
    script = Path(__file__).parents[2] / "support" / "operator" / "view_process.py"
    command = [sys.executable, str(script), str(SETS), str(REPLICAS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=scaled(300), check=True)
    growth = json.loads(done.stdout)
    assert growth["podcliquesets"] < 40 * MIB
    assert growth["computedomains"] < 40 * MIB
