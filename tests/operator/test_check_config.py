"""A configuration is checked without a command as well: it is the same file for both."""

import subprocess
from pathlib import Path

import pytest
from operator_site import operator_command


def checked(*arguments: str) -> tuple[int, str]:
    """Run gkm-operator to its end; return exit code and output."""
    done = subprocess.run(operator_command(*arguments), capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, (done.stdout + done.stderr).strip()


@pytest.mark.parametrize("check_first", [True, False])
def test_a_file_is_checked_without_a_command(tmp_path: Path, *, check_first: bool) -> None:
    path = tmp_path / "config.yaml"
    words = ["--check-config", f"--config={path}"] if check_first else [f"--config={path}", "--check-config"]
    path.write_text("store: {maxBytes: 1}\n", encoding="utf-8")
    assert checked(*words) == (0, "gkm-operator: the configuration is good")
    path.write_text("store: {maxBites: 1}\n", encoding="utf-8")
    code, said = checked(*words)
    assert (code, said.splitlines()) == (2, [said])
    assert "unknown field `maxBites` - at `$.store`" in said


def test_a_check_runs_nothing() -> None:
    code, said = checked("--check-config", "admission")
    assert (code, said.splitlines()[-1]) == (2, "gkm-operator: error: unrecognized arguments: admission")


def test_without_a_check_the_command_is_needed() -> None:
    code, said = checked("--config=anything")
    assert code == 2
    assert "required: command" in said
