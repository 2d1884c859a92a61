"""What kubectl_complete-gkm answers; tests/apiserver/cli/test_completion_by_kubectl.py has the real kubectl."""

import subprocess
import sys

import pytest
from support.cli.command import gkm
from support.host.waiting import scaled


@pytest.mark.parametrize("words", [["'"], ['"'], ["\\"], ["nothing", ""], ["cache", "$(touch x)", ""], []])
def test_any_words_give_a_directive_and_no_error(words: list[str]) -> None:
    command = [sys.executable, "-m", "gkm_cli.completion", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=scaled(60), check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] in (":0", ":4")


def test_version_is_that_of_the_option() -> None:
    assert gkm("version").stdout.split(",")[0] == gkm("--version").stdout.strip()
