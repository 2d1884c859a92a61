"""A process of the fork server is as one of a new interpreter: streams, environment, directory, signals and end."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.host.child_processes import is_gone
from support.host.fork_server import ForkServer
from support.host.waiting import scaled, until

PROGRAM = """
import atexit, os, pathlib, sys, threading, time

def main():
    kind, *rest = sys.argv[1:]
    if kind == "streams":
        print(os.environ["GIVEN"], "PATH" in os.environ, os.getcwd(), sys.stdin.read(), rest)
        print("wrong", file=sys.stderr)
    elif kind == "exit":
        sys.exit(eval(rest[0]))
    elif kind == "raise":
        raise eval(rest[0])
    elif kind == "late":
        atexit.register(print, "exit function")
        threading.Thread(target=lambda: (time.sleep(0.1), print("thread"))).start()
    elif kind == "sleep":
        pathlib.Path(rest[0]).touch()
        time.sleep(600)
"""
SECONDS = scaled(60)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    (tmp_path / "a_program.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = ForkServer("a_program:main", os.environ)
    yield made
    made.close()


def test_streams_environment_directory_and_arguments_are_those_of_the_request(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = server.run(["streams", "a b"], {"GIVEN": "é"}, SECONDS, b"typed")
    assert (done.returncode, done.stdout) == (0, f"é False {tmp_path} typed ['a b']\n")
    assert done.stderr == "wrong\n"


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["exit", "None"], 0, ""),
        (["exit", "3"], 3, ""),
        (["exit", "'no cache'"], 1, "no cache\n"),
        (["raise", "ValueError('no cache')"], 1, "ValueError: no cache\n"),
        (["raise", "KeyboardInterrupt()"], -signal.SIGINT, "KeyboardInterrupt\n"),
    ],
)
def test_the_exit_code_is_that_of_the_interpreter(server: ForkServer, words: list[str], code: int, error: str) -> None:
    done = server.run(words, os.environ, SECONDS)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.endswith(error)
    assert bool(done.stderr) == bool(error)


def test_threads_and_exit_functions_end_before_the_process(server: ForkServer) -> None:
    assert server.run(["late"], os.environ, SECONDS).stdout == "thread\nexit function\n"


def test_a_signal_reaches_the_process_and_no_other(server: ForkServer, tmp_path: Path) -> None:
    with Path(os.devnull).open("r+b") as nothing:
        one, other = (
            server.start(["sleep", str(tmp_path / name)], os.environ, [nothing] * 3) for name in ("one", "other")
        )
    until(lambda: (tmp_path / "one").exists() and (tmp_path / "other").exists(), "both run")
    one.send_signal(signal.SIGTERM)
    assert one.wait(SECONDS) == -signal.SIGTERM
    with pytest.raises(subprocess.TimeoutExpired, match="timed out after 0"):
        other.wait(0)
    assert other.kill() == -signal.SIGKILL
    other.send_signal(signal.SIGTERM)


def test_the_end_of_a_server_ends_its_processes(server: ForkServer, tmp_path: Path) -> None:
    with Path(os.devnull).open("r+b") as nothing:
        process = server.start(["sleep", str(tmp_path / "runs")], os.environ, [nothing] * 3)
    until((tmp_path / "runs").exists, "it runs")
    server.close()
    until(lambda: is_gone(process.pid), "it ends")
