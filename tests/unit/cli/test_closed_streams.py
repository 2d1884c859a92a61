"""Streams that the caller has closed, or whose reader has gone: one line and an exit code, never a traceback."""

import subprocess
import sys

import pytest
from support.host.waiting import scaled

GKM = f"{sys.executable} -m gkm_cli.main"


def shell(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=scaled(120), check=False)


@pytest.mark.parametrize("words", ["--version", "crds", "--help", "version -o json"])
def test_output_that_is_closed_is_a_failure_in_one_line(words: str) -> None:
    done = shell(f"{GKM} {words} >&-")
    assert (done.returncode, done.stderr) == (1, "error: standard output: Bad file descriptor; write elsewhere\n")


@pytest.mark.parametrize("streams", ["2>&-", "<&- 2>&-", "<&-"])
def test_other_streams_may_be_closed(streams: str) -> None:
    done = shell(f"{GKM} version {streams}")
    assert (done.returncode, done.stdout.startswith("gkm "), done.stderr) == (0, True, "")


def test_an_error_without_a_place_to_print_it_is_an_exit_code() -> None:
    done = shell(f"{GKM} crds --no-such-option >&- <&-")
    assert (done.returncode, "No such option: --no-such-option" in done.stderr) == (2, True), done
    done = shell(f"{GKM} crds --no-such-option >&- 2>&- <&-")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_a_reader_that_goes_ends_the_command_without_a_word() -> None:
    done = shell(f"{GKM} crds | head -1; echo ${{PIPESTATUS[0]}}")
    assert (done.stdout, done.stderr) == ("---\n1\n", "")


def test_a_full_disk_is_named() -> None:
    done = shell(f"{GKM} crds > /dev/full")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "No space left on device; free space there" in done.stderr
