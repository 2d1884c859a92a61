"""The end of a provider: whoever ends it, nothing of it stays, and nothing that it sends later counts."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.host.child_processes import children_of, is_gone
from support.host.waiting import until
from support.topology import hosting_process
from support.topology.hosted_providers import LIMITS, LONG, hosted, misbehaves

SERIAL = "MT1234X00001"


def test_a_process_that_a_dead_provider_left_is_ended(tmp_path: Path) -> None:
    with hosted(tmp_path, misbehaves("leaves-a-process", tmp_path)) as running:
        running.failed("leaves-a-process")
        running.until(lambda: is_gone(int(running.notes()[0])), "the process is gone")


@pytest.mark.parametrize("name", ["hangs-in-stop", "ignores-sigterm", "hangs-in-start", "hangs-in-c"])
def test_a_provider_that_does_not_stop_is_ended(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    before = children_of(os.getpid())
    with hosted(tmp_path, misbehaves(name, tmp_path), limits=replace(LIMITS, stop=0.5)) as running:
        running.until(lambda: children_of(os.getpid()) - before, "a child")
        if name != "hangs-in-start":
            running.serves(name)
    assert children_of(os.getpid()) == before
    if name != "hangs-in-start":
        assert "provider stopped badly" in caplog.text


def test_an_exception_of_stop_is_reported_without_its_message(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with hosted(tmp_path, misbehaves("raises-in-stop", tmp_path)) as running:
        running.serves("raises-in-stop")
    (record,) = [record for record in caplog.records if record.message == "provider stopped badly"]
    assert vars(record)["reason"].startswith("raised ValueError at misbehaving.py:")
    assert SERIAL not in caplog.text


def test_an_event_after_stop_does_not_count(tmp_path: Path) -> None:
    with hosted(tmp_path, misbehaves("sends-after-stop", tmp_path)) as running:
        running.serves("sends-after-stop")
    assert running.names("sends-after-stop") == {"one"}


def test_a_child_that_is_killed_is_replaced(tmp_path: Path) -> None:
    before = children_of(os.getpid())
    with hosted(tmp_path, misbehaves("serves", tmp_path)) as running:
        running.serves("serves")
        (child,) = children_of(os.getpid()) - before
        os.kill(child, signal.SIGKILL)
        assert running.failed("serves") == "was ended by SIGKILL"
        running.serves("serves")
        assert children_of(os.getpid()) - before != {child}


@pytest.mark.parametrize("name", ["serves", "hangs-in-stop"])
def test_a_child_ends_when_its_controllers_are_killed(tmp_path: Path, name: str) -> None:
    program = [sys.executable, str(Path(hosting_process.__file__)), str(tmp_path), name]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as hosting:
        assert hosting.stdout is not None
        assert hosting.stdout.readline() == "serves\n"
        (child,) = children_of(hosting.pid)
        hosting.kill()
    until(lambda: is_gone(child), "the child ends", LONG)
    assert running_notes(tmp_path) == (["stopped"] if name == "serves" else [])


def test_what_a_provider_started_ends_when_the_controllers_are_killed(tmp_path: Path) -> None:
    program = [sys.executable, str(Path(hosting_process.__file__)), str(tmp_path), "starts-a-process"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as hosting:
        assert hosting.stdout is not None
        assert hosting.stdout.readline() == "serves\n"
        until(lambda: running_notes(tmp_path), "the process", LONG)
        hosting.kill()
    until(lambda: is_gone(int(running_notes(tmp_path)[0])), "the process ends", LONG)


def running_notes(directory: Path) -> list[str]:
    file = directory / "notes"
    return file.read_text().splitlines() if file.exists() else []
