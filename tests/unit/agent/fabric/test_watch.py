"""The whole of it on one machine: what is read, settled and written, and what a hanging or wild machine does to it."""

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
import yaml
from gkm.api.fabric_settings import Fabric, SettleThresholds
from gkm.gpus.values import Inventory, LinkErrors
from gkm.hoststate.names import CacheRef
from gkm.kube import client
from gkm.kube.resources import NODES
from gkm_agent import options
from gkm_agent.fabric.objects import healthy
from gkm_agent.fabric.watch import FabricWatch
from gkm_agent.gpus import NOT_READ, GpuWatch
from gkm_agent.main import Backend, connect
from msgspec.structs import replace
from support.agent.fabric_fakes import FakeFabricSink
from support.agent.fabric_values import ATTACHED, DOMAIN, adapter, gpus, interface
from support.host.waiting import until
from support.kube.fake_api import FakeApi

REF = CacheRef("ml-apps", "llama")
NOWHERE = Path("/nowhere/whole.gz")
DIGEST = "sha256:" + "0123456789abcdef" * 4


class Machine:
    """A node whose GPUs and clock a test sets; it has no lldpd."""

    def __init__(self, sys: Path, settings: Fabric) -> None:
        self.sys = sys
        self.now = 0.0
        self.inventory: Inventory = gpus(ATTACHED, ATTACHED)
        self.sink = FakeFabricSink()
        self.watch = FabricWatch(
            settings,
            self.sink,
            "node-1",
            lambda: self.inventory,
            survey_file=NOWHERE,
            labels=dict,
            root=sys,
            clock=lambda: self.now,
        )

    def reads(self, inventory: Inventory, seconds: float = 60.0) -> tuple[str, str | None]:
        """Read once, so many seconds later; return domain and health as they are told then."""
        self.now += seconds
        self.inventory = inventory
        report = self.watch.read()
        assert report is not None
        labels = report.labels.labels
        assert (report.status.domain, report.status.health) == (
            labels.get("gkm.io/fabric-domain", ""),
            labels["gkm.io/fabric-health"],
        )
        return report.status.domain, report.status.health


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "class").mkdir()
    return Machine(tmp_path, Fabric(lldpcli=f"{tmp_path}/lldpcli", settle=SettleThresholds(3, 90)))


def test_one_report_has_all_readings(machine: Machine) -> None:
    adapter(machine.sys, "mlx5_0")
    interface(machine.sys, "eth0")
    lldpcli = machine.sys / "lldpcli"
    lldpcli.write_text(
        '#!/bin/sh\necho \'{"lldp":[{"interface":[{"name":"eth0","via":"LLDP",'
        '"chassis":[{"id":[{"value":"c"}]}],"port":[{"id":[{"value":"p"}]}]}]}]}\'\n'
    )
    lldpcli.chmod(0o755)

    report = machine.watch.read()

    assert report is not None
    assert report.status.domain == DOMAIN
    assert report.status.nvlink is not None
    assert report.status.nvlink.health.mask == 0x11AA
    assert report.status.infiniband_ports == "1/1"
    assert [link.interface for link in report.status.ethernet] == ["eth0"]
    assert report.status.problems == []
    assert report.labels.labels["gkm.io/gpu-flavor"] == "nvidia-gb200"


def test_there_is_no_report_before_the_gpus_are_read(machine: Machine) -> None:
    machine.inventory = NOT_READ
    assert machine.watch.read() is None


def test_a_fabric_that_is_lost_leaves_the_labels_once_that_has_lasted_and_comes_back_at_once(machine: Machine) -> None:
    good, gone = (DOMAIN, "healthy"), ("", "none")
    assert machine.reads(gpus(ATTACHED)) == good
    assert [machine.reads(gpus(None)) for _ in range(3)] == [good, good, gone]
    assert machine.reads(gpus(ATTACHED), 1) == good


def test_one_reading_of_the_gpus_counts_once_however_often_it_is_looked_at(machine: Machine) -> None:
    assert machine.reads(gpus(ATTACHED)) == (DOMAIN, "healthy")
    same = gpus(None)
    assert {machine.reads(same) for _ in range(9)} == {(DOMAIN, "healthy")}


def test_links_whose_errors_recur_degrade_the_node_once_that_has_lasted(machine: Machine) -> None:
    def recovered(count: int) -> Inventory:
        return Inventory(tuple(replace(gpu, links=(LinkErrors(3, 0, count),)) for gpu in gpus(ATTACHED).gpus))

    good, bad = (DOMAIN, "healthy"), (DOMAIN, "degraded")
    # The first reading has nothing to compare with; the three that follow are the fault, which must last for three.
    assert [machine.reads(recovered(count)) for count in range(6)] == [good] * 5 + [bad]
    report = machine.watch.read()
    assert report is not None
    assert report.status.message == "link errors: NVLink link 3 of GPU 0"
    assert healthy(report.status) == ("False", "FabricDegraded", report.status.message)


def test_a_driver_that_is_restarted_takes_no_label_along(machine: Machine) -> None:
    away = Inventory(errors=("GPUs cannot be read: nvmlInit: Driver Not Loaded",))
    machine.inventory = away
    assert machine.watch.read() is None
    assert machine.reads(gpus(ATTACHED), 10) == (DOMAIN, "healthy")
    assert machine.reads(Inventory(errors=away.errors), 10) == (DOMAIN, "healthy")


def test_an_unreadable_file_is_a_problem_in_the_report(machine: Machine) -> None:
    adapter(machine.sys, "mlx5_0", {1: {"link_layer": "?"}})
    report = machine.watch.read()
    assert report is not None
    assert [problem.partition(":")[0] for problem in report.status.problems] == ["mlx5_0 port 1", "fabric.lldpcli"]


def test_problems_are_bounded(machine: Machine) -> None:
    for device in range(40):
        adapter(machine.sys, f"mlx5_{device}", {1: {"link_layer": "?"}})
    report = machine.watch.read()
    assert report is not None
    assert len(report.status.problems) == 16
    assert report.status.problems[-1] == "and 2 more"


def test_ready_caches_have_labels_only_where_that_is_configured(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    for configured, expected in ((True, "0123456789ab"), (False, None)):
        machine = Machine(tmp_path, Fabric(cache_labels=configured, lldpcli="/none"))
        first = machine.watch.read()
        assert first is not None
        assert first.labels.caches is not configured
        machine.watch.ready({REF: DIGEST})
        second = machine.watch.read()
        assert second is not None
        assert second.labels.caches
        assert second.labels.labels.get("cache.gkm.io/ml-apps.llama") == expected


def test_its_threads_read_write_and_end(machine: Machine) -> None:
    machine.watch.start()
    try:
        until(lambda: machine.sink.reports, "the first report is written")
        machine.inventory = gpus(ATTACHED, ATTACHED, ATTACHED)
        before = len(machine.sink.reports)
        machine.watch._wake.set()
        until(lambda: len(machine.sink.reports) > before, "it is woken")
        assert machine.watch._publisher.flush(10)
    finally:
        machine.watch.stop()
    assert not machine.watch._thread.is_alive()
    assert not machine.watch._publisher._thread.is_alive()


def test_it_ends_while_lldpcli_hangs(machine: Machine) -> None:
    lldpcli = machine.sys / "lldpcli"
    lldpcli.write_text(f"#!/bin/sh\ntouch {machine.sys}/runs\nexec sleep 600\n")
    lldpcli.chmod(0o755)
    machine.watch.start()
    until((machine.sys / "runs").exists, "it hangs")
    machine.watch.stop()
    assert not machine.watch._thread.is_alive()


def test_a_defect_does_not_end_the_watching(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    machine = Machine(tmp_path, Fabric(lldpcli="/none"))
    asked: list[int] = []

    def inventory() -> Inventory:
        asked.append(1)
        if len(asked) == 1:
            raise ZeroDivisionError
        return gpus(ATTACHED)

    watch = FabricWatch(
        Fabric(lldpcli="/none"), machine.sink, "node-1", inventory, survey_file=NOWHERE, root=tmp_path, interval=0.01
    )
    watch.start()
    try:
        until(lambda: machine.sink.reports, "it goes on")
    finally:
        watch.stop()


@pytest.fixture
def gpu_watch() -> Iterator[GpuWatch]:
    watch = GpuWatch(lambda: gpus(ATTACHED), Event())
    watch.start()
    yield watch
    watch.stop()


def fabric_of(backend: Backend, gpus: GpuWatch) -> FabricWatch:
    return FabricWatch(
        Fabric(), backend.fabric_sink, "node-1", lambda: gpus.inventory, survey_file=NOWHERE, labels=backend.node_labels
    )


def test_without_kubernetes_the_backend_writes_the_fabric_to_a_file(tmp_path: Path, gpu_watch: GpuWatch) -> None:
    chosen = options.parse(["--static", str(tmp_path), "--status", str(tmp_path), "--node", "node-1"], {})
    part = fabric_of(connect(chosen, Event()), gpu_watch)
    part.start()
    try:
        path = tmp_path / "node-1.fabric.yaml"
        until(path.exists, "it is written")
    finally:
        part.stop()
    assert yaml.load(path.read_text(), yaml.CSafeLoader)["status"]["domain"] == DOMAIN


def test_in_kubernetes_the_backend_labels_the_node(gpu_watch: GpuWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    api = FakeApi()
    api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "labels": {"pool": "gpu"}}})
    monkeypatch.setattr(client, "connect", lambda *_, **__: api)
    backend = connect(options.parse(["--node", "node-1"], {}), Event())
    source = backend.source
    source.start()
    part = fabric_of(backend, gpu_watch)
    part.start()
    try:
        until(lambda: "gkm.io/fabric-domain" in api.get(NODES, "node-1")["metadata"]["labels"], "it is labelled")
        assert part._publisher.flush(20)
    finally:
        part.stop()
        source.stop()
    labels = api.get(NODES, "node-1")["metadata"]["labels"]
    assert labels["pool"] == "gpu"
    assert labels["gkm.io/fabric-domain"] == DOMAIN
