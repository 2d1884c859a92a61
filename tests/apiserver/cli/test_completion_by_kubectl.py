"""`kubectl gkm` completes: the real kubectl runs kubectl_complete-gkm, as it does for every plugin."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.peers import require


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory with the plugin and its completion, as an installation has them."""
    for name, module in (("kubectl-gkm", "gkm_cli.main"), ("kubectl_complete-gkm", "gkm_cli.completion")):
        path = tmp_path / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
        path.chmod(0o755)
    return tmp_path


def completed(programs: Path, *words: str) -> tuple[list[str], str]:
    """Return candidates and the directive for the words behind `kubectl gkm`."""
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(programs)}
    command = [str(require.peer("kubectl")), "__complete", "gkm", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    *candidates, directive = done.stdout.splitlines()
    return [candidate.partition("\t")[0] for candidate in candidates], directive


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["do"], ["doctor"]),
        (["cache", "ver"], ["verify"]),
        (["cache", "verify", "--trus"], ["--trusted-root"]),
        (["doctor", "-o", ""], ["table", "json", "yaml"]),
        (["doctor", "-o", "j"], ["json"]),
    ],
)
def test_kubectl_completes_commands_options_and_values(programs: Path, words: list[str], expected: list[str]) -> None:
    assert completed(programs, *words) == (expected, ":4")


def test_without_a_candidate_kubectl_completes_files(programs: Path) -> None:
    assert completed(programs, "cache", "push", "./no")[1] == ":0"
