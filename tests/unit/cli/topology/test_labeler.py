"""hack/labeler.sh without a cluster: it prints what is wrong, and the commands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.host.waiting import scaled
from support.topology.clusters import labeled, written

LABELER = Path(__file__).resolve().parents[4] / "hack" / "labeler.sh"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment with `gkm`, and with a kubectl that must not be run."""
    (tmp_path / "gkm").symlink_to(Path(sys.executable).with_name("gkm"))
    kubectl = tmp_path / "kubectl"
    kubectl.write_text('#!/bin/sh\necho "kubectl $*" >&2\nexit 99\n')
    kubectl.chmod(0o755)
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}"}


def labeler(environment: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(LABELER), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=scaled(120), check=False, env=environment)


def test_it_prints_findings_and_commands_and_runs_none(tmp_path: Path, environment: dict[str, str]) -> None:
    nodes = written(tmp_path / "nodes.json", labeled("gpu-0", block="unknown"), labeled("gpu-1", block="b1"))
    done = labeler(environment, "--nodes", nodes)
    assert done.returncode == 3
    assert done.stdout.splitlines()[0].startswith("problem: Placeholder: ")
    assert done.stdout.splitlines()[-1] == "kubectl label nodes gpu-0 block-"


def test_a_command_that_fails_ends_it(tmp_path: Path, environment: dict[str, str]) -> None:
    nodes = written(tmp_path / "nodes.json", labeled("gpu-0", block="unknown"))
    applied, read = labeler(environment, "--nodes", nodes, "--apply"), labeler(environment)
    assert (applied.returncode, applied.stderr) == (99, "kubectl label nodes gpu-0 block-\n")
    assert (read.returncode, read.stderr) == (99, "kubectl get nodes -o json\n")


def test_labels_that_are_right_need_no_command(tmp_path: Path, environment: dict[str, str]) -> None:
    nodes = written(tmp_path / "nodes.json", labeled("gpu-0", block="b1"))
    done = labeler(environment, "--nodes", nodes)
    assert (done.returncode, done.stdout) == (0, "1 node: 0 problems, 0 warnings\n")


@pytest.mark.parametrize("arguments", [["--nodes"], ["--config"], ["--nodes", ""], ["--other"], ["nodes.json"]])
def test_wrong_usage_is_answered_with_the_usage(environment: dict[str, str], arguments: list[str]) -> None:
    done = labeler(environment, *arguments)
    assert (done.returncode, done.stderr.startswith("usage: labeler.sh ")) == (2, True)
