"""The programs of a cluster print printable lines only, for any environment and files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.host.waiting import scaled

COMMANDS = "a\x1b[2J\x9b31m\u202e\nb"


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=scaled(60),
        check=False,
    )


@pytest.mark.parametrize(
    ("command", "environment"),
    [
        (["gkm_operator.main", "controllers"], {"GKM_LOG_LEVEL": COMMANDS}),
        (["gkm_agent.main", "--node", "n"], {"GKM_LOG_LEVEL": COMMANDS}),
        (["gkm_csi.main", "--node", "n"], {"GKM_STATE": COMMANDS}),
    ],
)
def test_an_invalid_value_is_printed_escaped(command: list[str], environment: dict[str, str]) -> None:
    done = run(*command, **environment)
    assert done.returncode == 2
    assert all(line.isprintable() for line in done.stderr.split("\n")), ascii(done.stderr)
    last = done.stderr.splitlines()[-1]
    assert "error: " in last
    assert "[2J" in last


def test_an_unknown_key_of_a_configuration_is_printed_escaped(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(r'"poli\e[2J\u202e": 1')
    done = run("gkm_operator.main", "--check-config", f"--config={config}")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert r"poli\x1b[2J\u202e" in done.stderr
