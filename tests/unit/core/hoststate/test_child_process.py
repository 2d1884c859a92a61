"""A child and what it started end within their time, whatever they do; a frame is a length and its bytes."""

import socket
import sys
from pathlib import Path

import pytest
from gkm.hoststate.child_process import ChildProcess
from gkm.hoststate.frames import HEADER_BYTES, frame, size_of
from support.host.waiting import until

IGNORES = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
READY = "import os; os.write(0, b'x'); "


def python(script: str, **environment: str) -> ChildProcess:
    return ChildProcess((sys.executable, "-I", "-c", script), environment)


def is_gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def received(child: ChildProcess, size: int = 1) -> bytes:
    child.socket.settimeout(60)
    return child.socket.recv(size, socket.MSG_WAITALL)


def test_a_frame_has_its_length_in_front() -> None:
    data = frame(b"abc")
    assert size_of(data[:HEADER_BYTES]) == 3
    assert data[HEADER_BYTES:] == b"abc"


def test_a_child_that_exits_has_its_status() -> None:
    child = python("raise SystemExit(3)")
    assert child.has_exited(60)
    assert child.end(0, 60) == 3


@pytest.mark.parametrize(("script", "status"), [("", -15), (IGNORES, -9)], ids=["waits", "ignores"])
def test_a_child_is_terminated_and_then_killed(script: str, status: int) -> None:
    child = python(script + READY + "import time; time.sleep(600)")
    assert received(child) == b"x"
    assert not child.has_exited()
    assert child.end(0.5, 60) == status
    assert child._process.poll() is not None


def test_what_the_child_started_ends_too() -> None:
    child = python(
        "import os, subprocess\n"
        "other = subprocess.Popen(['sleep', '600'], stdin=subprocess.DEVNULL)\n"
        "os.write(0, b'%10d' % other.pid)\n"
    )
    other = int(received(child, 10))
    assert child.has_exited(60)
    assert not is_gone(other)
    assert child.end(0, 60) == 0
    until(lambda: is_gone(other), "the other process has ended")


def test_a_child_has_only_the_given_environment_and_one_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GKM_SECRET_OF_A_TEST", "1")
    child = python(
        "import os; found = sorted(os.listdir('/proc/self/fd')); inherited = 'GKM_SECRET_OF_A_TEST' in os.environ\n"
        "os.write(0, repr((found[:3], len(found), os.environ.get('A'), inherited)).encode())",
        A="b",
    )
    child.has_exited(60)
    # Three, and the one that lists them.
    assert received(child, 1000).decode() == "(['0', '1', '2'], 4, 'b', False)"
    child.end(0, 60)


def test_a_program_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ChildProcess((str(tmp_path / "absent"),), {})
