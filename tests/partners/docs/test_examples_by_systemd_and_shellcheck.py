"""Examples for machines without a cluster: systemd and shellcheck have no complaint."""

import subprocess
from pathlib import Path

import pytest
from support.peers import require

EXAMPLES = Path(__file__).parents[3] / "deploy" / "examples"
UNIT = EXAMPLES / "systemd" / "gkm-agent.service"
SCRIPTS = sorted(EXAMPLES.glob("*/*.sh"))


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    analyze = require.command("systemd-analyze", "systemd")
    program = tmp_path / "gkm-agent"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/gkm/bin/gkm-agent", str(program)))
    done = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if UNIT.name in line]) == (0, [])


@pytest.mark.parametrize("script", SCRIPTS, ids=[script.name for script in SCRIPTS])
def test_shellcheck_accepts_a_script(script: Path) -> None:
    done = subprocess.run(
        [require.command("shellcheck", "shellcheck"), script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
