"""Ports for tests: two runs on one machine never get the same one, and a program of ours says where it listens."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.host import listening, ports
from support.host.processes import Process, ProcessFailed

TESTS = Path(__file__).parents[2]


def elsewhere(port: int | None = None) -> subprocess.CompletedProcess[str]:
    """Take a port in another process, which ends; if a port is given, only this one is good."""
    only = f"ports.LOWEST = ports.HIGHEST = {port}" if port else ""
    program = f"from support.host import ports\n{only}\nprint(ports.free())"
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)


def test_a_port_is_given_once_on_the_machine_while_its_process_lives() -> None:
    port = ports.free()
    done = elsewhere(port)
    assert done.returncode == 1
    assert f"RuntimeError: no free port between {port} and {port}" in done.stderr


def test_a_port_is_given_again_after_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    port = int(elsewhere().stdout)
    monkeypatch.setattr(ports, "LOWEST", port)
    monkeypatch.setattr(ports, "HIGHEST", port)
    assert ports.free() == port


def test_a_port_on_which_something_listens_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(ports, "LOWEST", server.getsockname()[1])
        monkeypatch.setattr(ports, "HIGHEST", server.getsockname()[1])
        with pytest.raises(RuntimeError, match=r"^no free port between"):
            ports.free()


SERVER = """
import signal, socket, sys
servers = [socket.create_server((host, int(port))) for host, port in zip(sys.argv[1::2], sys.argv[2::2])]
connection = socket.create_connection(servers[0].getsockname())
print(*(server.getsockname()[1] for server in servers), flush=True)
signal.pause()
"""


def test_a_process_with_port_0_is_found_where_it_listens(tmp_path: Path) -> None:
    known = ports.free()
    process = Process.start(
        "server", [sys.executable, "-c", SERVER, "127.9.8.7", "0", "127.0.0.1", str(known)], tmp_path / "log"
    )
    try:
        process.ready(lambda: process.log.read_text().endswith("\n"), "it listens")
        chosen, other = map(int, process.log.read_text().split())
        assert sorted(listening.addresses_of(process.pid)) == [f"127.0.0.1:{other}", f"127.9.8.7:{chosen}"]
        assert listening.address(process, besides=known) == f"127.9.8.7:{chosen}"
    finally:
        process.stop()
    assert listening.addresses_of(process.pid) == []


def test_a_process_that_ends_before_it_listens_is_reported(tmp_path: Path) -> None:
    process = Process.start("server", [sys.executable, "-c", "print('no port')"], tmp_path / "log")
    with pytest.raises(ProcessFailed, match="server ended with code 0 before it listens"):
        listening.address(process)
