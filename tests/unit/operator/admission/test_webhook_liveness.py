"""A webhook whose event loop hangs or ended is not alive for kubelet."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest
from gkm.api.config import Config
from gkm.hoststate.command_line import Parser
from gkm.probes.server import PageServer
from gkm_operator.admission import command
from gkm_operator.admission.https import server as https_server
from gkm_operator.admission.https.server import AdmissionServer
from gkm_operator.health import health_server
from gkm_operator.main import add_admission_flags
from support.host import pages
from support.host.waiting import scaled, until
from support.operator.issued import issue
from support.operator.webhook import (
    serving,
)


@contextmanager
def command_running(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[AdmissionServer, str]]:
    """Run `gkm-operator admission` in a thread; yield its webhook server and the address of its pages."""
    servers, pages_of = list[AdmissionServer](), list[PageServer]()

    class RecordedServer(AdmissionServer):
        def start(self) -> None:
            servers.append(self)
            super().start()

    def recorded_pages(address: tuple[str, int], ready: Callable[[], bool], alive: Callable[[], bool]) -> PageServer:
        pages_of.append(health_server(address, ready, alive))
        return pages_of[-1]

    monkeypatch.setattr(command, "AdmissionServer", RecordedServer)
    monkeypatch.setattr(command, "health_server", recorded_pages)
    issued = issue(directory / "tls", ["127.0.0.1"])
    stop = Event()
    parser = Parser(prog="admission")
    add_admission_flags(parser)
    addresses = ["--listen", "127.0.0.1:0", "--health", "127.0.0.1:0"]
    files = ["--tls-cert", str(issued.certificate), "--tls-key", str(issued.key)]
    arguments = parser.parse_args([*addresses, *files])
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(command.run, arguments, Config(), stop)
        try:
            until(lambda: ended.done() or (servers and servers[0].ready.is_set()), "the webhook is served")
            if ended.done():
                pytest.fail(f"the command ended with {ended.result()}")  # an error of the thread is raised here
            yield servers[0], f"127.0.0.1:{pages_of[0].port}"
        finally:
            stop.set()
        assert ended.result(scaled(30)) == 0


def test_kubelet_sees_a_webhook_whose_event_loop_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(https_server, "HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(https_server, "HUNG_SECONDS", 1.0)
    release = Event()
    with command_running(tmp_path, monkeypatch) as (server, health):
        until(lambda: pages.fetch(health, "healthz")[0] == 200, "the event loop runs")
        assert server._loop is not None
        server._loop.call_soon_threadsafe(release.wait, 60)
        try:
            until(lambda: pages.fetch(health, "healthz")[0] == 503, "the hung event loop is reported")
            assert "hangs" in pages.fetch(health, "healthz")[1]
            assert pages.fetch(health, "metrics")[0] == 200
        finally:
            release.set()
        until(lambda: pages.fetch(health, "healthz")[0] == 200, "the event loop runs again")


def test_a_webhook_whose_event_loop_ended_is_not_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(https_server, "HUNG_SECONDS", 1.0)
    with serving(tmp_path) as site:
        until(lambda: site.server.alive, "the event loop runs")
        site.server.close()
        until(lambda: not site.server.alive, "no heartbeat is left")
