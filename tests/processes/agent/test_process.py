"""The real process from its start to its end: what it serves, what it logs, and how it ends when it is told to."""

import json
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gkm.hoststate import counters
from gkm.hoststate.counters import Histogram, NodeCounters
from gkm.hoststate.pointers import CacheState
from prometheus_client.parser import text_string_to_metric_families
from support.agent.machine import REF, Machine, is_ready
from support.fakes import nvml_library
from support.host import ports
from support.host.fork_server import ForkedProcess
from support.host.waiting import until
from support.kube import kubeconfigs
from support.registry.faults import dripping, stalled

DEADLINE = 30
"""More than the process allows itself (main.END_SECONDS)."""


@dataclass(frozen=True)
class Running:
    """A running agent, and its log."""

    process: ForkedProcess
    log: Path

    @property
    def events(self) -> list[dict[str, Any]]:
        complete, _, _ = self.log.read_text(encoding="utf-8").rpartition("\n")
        return [json.loads(line) for line in complete.splitlines()]

    def said(self, event: str) -> dict[str, Any] | None:
        return next((line for line in self.events if line["event"] == event), None)

    @property
    def port(self) -> int:
        return int(until(lambda: self.said("health server started"), "health server started")["port"])

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=DEADLINE) as answer:
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metric(self, name: str, **labels: str) -> float | None:
        for family in text_string_to_metric_families(self.get("/metrics")[1]):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        return None

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE)


@contextmanager
def running(machine: Machine, *more: str, arguments: list[str] | None = None) -> Iterator[Running]:
    arguments = [*(arguments or machine.arguments()), "--health=127.0.0.1:0", *more]
    with machine.running(arguments) as process:
        yield Running(process, machine.log)


def test_without_kubernetes_health_and_metrics_are_served_as_with_it(machine: Machine) -> None:
    counters.save(machine.layout, NodeCounters({"OK": Histogram().with_observation(0.004)}))
    with running(machine) as agent:
        until(lambda: is_ready(machine), "the cache is Ready")
        until(lambda: agent.get("/readyz") == (200, "ok\n"), "the agent is ready")
        assert agent.metric("gkm_ready", program="gkm-agent") == 1
        until(lambda: agent.metric("gkm_cache_state", state="Ready") == 1, "the state is counted")

        assert agent.get("/healthz") == (200, "ok\n")
        assert agent.get("/")[0] == 404
        blobs = sum(path.stat().st_size for path in machine.layout.store.rglob("*") if path.is_file())
        assert 0 < (agent.metric("gkm_pull_bytes_total") or 0) < blobs
        assert (agent.metric("gkm_store_bytes") or 0) > 0
        for stage in ("resolve", "describe", "download", "extract"):
            assert agent.metric("gkm_pull_seconds_count", stage=stage) == 1
        assert agent.metric("gkm_verify_seconds_count", result="verified") == 1
        assert agent.metric("gkm_publish_seconds_count", code="OK") == 1
        assert agent.metric("gkm_mounts", mode="read-only") == 0
        assert agent.metric("process_resident_memory_bytes")
        assert "vector-add" not in agent.get("/metrics")[1]
        assert agent.end() == 0
        with pytest.raises(urllib.error.URLError, match="Connection refused"):
            agent.get("/healthz")


SLOW: list[tuple[str, Callable[[], Any]]] = [
    ("a blob that drips", lambda: dripping("/blobs/", piece=256, pause=0.5)),
    ("a registry that says nothing", lambda: stalled("/manifests/")),
]


@pytest.mark.parametrize("fault", [make for _, make in SLOW], ids=[name for name, _ in SLOW])
def test_a_stop_during_a_pull_ends_soon_and_the_next_start_resumes(machine: Machine, fault: Callable[[], Any]) -> None:
    machine.registry.misbehave(fault())
    with running(machine) as agent:
        until(lambda: agent.said("pull started"), "a pull is under way")
        until(lambda: machine.registry.requests, "the registry is asked")
        until((machine.root / "nodes" / "ml-apps" / "node-1.yaml").exists, "the status is written")
        assert agent.end() == 0
        assert agent.said("agent stopped")
        assert not [line for line in agent.events if "traceback" in line]
    pointer = machine.pointer()
    assert pointer is not None
    assert pointer.state in {CacheState.PENDING, CacheState.DOWNLOADING}
    told = machine.node_object()["status"]["caches"][REF.name]
    assert (told["state"], told.get("digest", "")) == (pointer.state.value, pointer.digest)

    machine.registry.behave()
    with running(machine) as agent:
        until(lambda: is_ready(machine), "the cache is Ready")
        assert agent.end() == 0
    assert not list(machine.layout.work.iterdir())


def test_a_partial_blob_is_not_fetched_twice(machine: Machine) -> None:
    machine.registry.misbehave(dripping("/blobs/", piece=256, pause=0.5))
    with running(machine) as agent:
        until(lambda: _parts(machine), "a part has come")
        assert agent.end() == 0
    machine.registry.behave()
    machine.registry.requests.clear()

    assert machine.once().returncode == 0

    ranges = [request.headers["range"] for request in machine.registry.requests if "range" in request.headers]
    assert ranges
    assert not [asked for asked in ranges if asked == "bytes=0-"]


def _parts(machine: Machine) -> bool:
    return any(path.is_file() and path.stat().st_size >= 512 for path in machine.layout.blobs.rglob("*"))


def test_an_api_server_that_is_away_makes_it_unready_and_never_unhealthy(machine: Machine) -> None:
    kubeconfig = kubeconfigs.write(machine.root / "kubeconfig", f"http://127.0.0.1:{ports.free()}")
    arguments = [part for part in machine.arguments() if part not in {"--static", str(machine.manifests)}]
    with running(machine, "--kubeconfig", str(kubeconfig), arguments=arguments) as agent:
        until(lambda: (agent.metric("gkm_api_requests_total", verb="list", code="none") or 0) > 0, "it was asked")
        until(lambda: "no reconcile pass" not in agent.get("/readyz")[1], "a pass has ended")
        assert agent.get("/healthz") == (200, "ok\n")
        assert agent.get("/readyz") == (503, "the source has not listed all caches yet\n")
        assert agent.metric("gkm_ready", program="gkm-agent") == 0
        assert agent.end() == 0


def test_a_driver_that_hangs_makes_it_unready_and_never_unhealthy(machine: Machine, tmp_path: Path) -> None:
    library = tmp_path / "hangs" / "libnvidia-ml.so.1"
    library.parent.mkdir()
    source = library.with_suffix(".c")
    source.write_text("#include <unistd.h>\nint nvmlInitWithFlags(unsigned f) { for (;;) pause(); }\n"
                      "int nvmlInit_v2(void) { for (;;) pause(); }\n")  # fmt: skip
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    machine.variables = nvml_library.environment(machine.root, library=library.parent, gpus=[nvml_library.H100])
    with running(machine) as agent:
        (child,) = until(lambda: _hanging(agent.process.pid), "the driver is asked")
        try:
            assert agent.get("/healthz") == (200, "ok\n")
            code, text = agent.get("/readyz")
            assert (code, "the GPUs have not been read yet" in text) == (503, True)
            assert _hanging(agent.process.pid) == [child]
        finally:
            os.kill(child, signal.SIGKILL)


def test_an_address_in_use_is_logged_and_ends_the_agent(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with running(machine, f"--health=127.0.0.1:{port}") as agent:
            assert agent.process.wait(DEADLINE) == 1
    (why,) = [line["why"] for line in agent.events if line["event"] == "agent failed, process ends"]
    assert why.startswith("[Errno 98] ")
    assert f"--health 127.0.0.1:{port}: cannot listen there" in why


def test_every_log_line_has_time_level_and_event(machine: Machine) -> None:
    with running(machine, "--log-level=debug") as agent:
        until(lambda: is_ready(machine), "the cache is Ready")
        assert agent.end() == 0
    assert len(agent.events) > 3
    for line in agent.events:
        assert list(line)[:3] == ["time", "level", "event"]
        assert line["level"] in {"debug", "info", "warning", "error"}
    begins = agent.said("pull started")
    assert begins is not None
    assert begins["cache"] == str(REF)
    assert agent.said("pull finished")


def _hanging(agent: int) -> list[int]:
    """Return the children of a process that have loaded the library that hangs."""
    # Of every thread: one of them reads the GPUs.
    lists = [path.read_text() for path in Path(f"/proc/{agent}/task").glob("*/children")]
    children = [child for listed in lists for child in listed.split()]
    return [int(child) for child in children if "/hangs/libnvidia-ml" in Path(f"/proc/{child}/maps").read_text()]
