"""How the real process ends when it cannot begin."""

import json
import subprocess
from pathlib import Path

from support.operator.deployment import operator_command


def test_a_fatal_error_ends_with_one_line(tmp_path: Path) -> None:
    command = operator_command("controllers", f"--kubeconfig={tmp_path / 'none'}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    (line,) = (done.stdout + done.stderr).splitlines()
    assert done.returncode == 1
    told = json.loads(line)
    assert (told["event"], told["command"], told["error"]) == ("process failed", "controllers", "NotConfigured")
    assert "no kubeconfig or pod credentials for the Kubernetes API" in told["why"]
