"""Partners that fail say why, and are ended."""

import sys
from pathlib import Path

import pytest
from support.host.processes import Process, ProcessFailed


def python(directory: Path, program: str) -> Process:
    return Process.start("partner", [sys.executable, "-u", "-c", program], directory / "partner.log")


def test_a_partner_that_ends_too_early_shows_its_last_words(tmp_path: Path) -> None:
    process = python(tmp_path, "print('flag --nonsense is unknown'); raise SystemExit(3)")
    with pytest.raises(ProcessFailed, match=r"(?s)partner ended with code 3 before it answered.*--nonsense is unknown"):
        process.ready(lambda: False, "it answered", 10)


def test_a_partner_that_is_never_ready_shows_its_last_words(tmp_path: Path) -> None:
    process = python(tmp_path, "import time; print('still waiting'); time.sleep(60)")
    process.ready(lambda: "still waiting" in process.log.read_text(), "it spoke", 10)
    with pytest.raises(ProcessFailed, match=r"(?s)waited 0.1 s for an answer.*still waiting"):
        process.ready(lambda: False, "an answer", 0.1)
    process.stop()


def test_a_partner_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    program = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf'); time.sleep(60)"
    process = python(tmp_path, program)
    process.ready(lambda: "deaf" in process.log.read_text(), "it spoke", 10)
    process.stop(0.2)
    assert process.popen.returncode == -9
