"""Examples for machines without a cluster: systemd and shellcheck have no complaint, and flags and paths are real."""

import shlex
import subprocess
from pathlib import Path

import pytest
from gkm_agent import options
from support.peers import require

EXAMPLES = Path(__file__).parents[3] / "deploy" / "examples"
UNIT = EXAMPLES / "systemd" / "gkm-agent.service"
SCRIPTS = sorted(EXAMPLES.glob("*/*.sh"))


def directives() -> list[tuple[str, str]]:
    lines = UNIT.read_text().splitlines()
    return [(name, value) for name, found, value in (line.partition("=") for line in lines) if found and name[0] != "#"]


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    analyze = require.command("systemd-analyze", "systemd")
    program = tmp_path / "gkm-agent"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/gkm/bin/gkm-agent", str(program)))
    done = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if UNIT.name in line]) == (0, [])


def test_the_flags_of_the_unit_are_those_of_the_agent() -> None:
    (command,) = (value for name, value in directives() if name == "ExecStart")
    parsed = options.parse(shlex.split(command)[1:], {})
    assert parsed.static == Path("/etc/gkm/caches")
    assert parsed.layout.state == Path("/var/lib/gkm")
    assert parsed.layout.run == Path("/run/gkm")


def test_the_unit_may_write_only_directories_of_its_own_and_has_no_capability() -> None:
    own = dict(directives())
    assert (own["StateDirectory"], own["RuntimeDirectory"], own["ProtectSystem"]) == ("gkm", "gkm", "strict")
    assert own["CapabilityBoundingSet"] == ""
    assert "ReadWritePaths" not in own


@pytest.mark.parametrize("script", SCRIPTS, ids=[script.name for script in SCRIPTS])
def test_shellcheck_accepts_a_script(script: Path) -> None:
    done = subprocess.run(
        [require.command("shellcheck", "shellcheck"), script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
