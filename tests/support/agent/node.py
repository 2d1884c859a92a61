"""A node without a cluster: an agent over fakes of its own Protocols, on a real disk."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event

import pytest
from gkm.api.config import Store
from gkm.api.nodes import NodeCacheStatus
from gkm.gpus.values import Inventory
from gkm.hoststate import pointers, records
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import Pointer
from gkm.hoststate.records import VolumeRecord
from gkm.kube.resources import NODES
from gkm_agent.caches.model import WantedCache
from gkm_agent.gpus import GpuWatch
from gkm_agent.kubernetes.source import KubernetesSource
from gkm_agent.reconcile.reconciler import Reconciler
from gkm_agent.report.publisher import StatusPublisher
from gkm_agent.store import node_cleanup as cleaning
from gkm_agent.store.pointers import PointerStore
from support.agent.fakes import FakeGpus, FakeImages, FakeSink, FakeSource, digest_of
from support.agent.machine import Machine, machine_in
from support.fakes import nvml_library
from support.host.waiting import scaled
from support.kube.fake_api import FakeApi
from support.registry.server import Registry

IMAGE = "registry.example/team/cache:1"
REF = CacheRef("ml-apps", "llama")
LABELS = {"kubernetes.io/hostname": "host-1", "pool": "gpu"}


@dataclass
class Node:
    """An agent and all it touches. `settle` works until nothing can be done now; `restart` forgets what it knew."""

    layout: Layout
    images: FakeImages
    source: FakeSource = field(default_factory=FakeSource)
    sink: FakeSink = field(default_factory=FakeSink)
    gpus: FakeGpus = field(default_factory=FakeGpus)
    now: float = 1_750_000_000.0
    policy: str = "policy"
    serve_revoked: bool = False
    agent: Reconciler = field(init=False)
    watch: GpuWatch = field(init=False)
    publisher: StatusPublisher = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        cleaning.prepare(self.layout)
        wake = Event()
        self.watch = GpuWatch(self.gpus, wake)
        self.watch.refresh()
        self.publisher = StatusPublisher(self.sink)
        self.agent = Reconciler(
            store=PointerStore(self.layout),
            source=self.source,
            images=self.images,
            gpus=self.watch,
            publisher=self.publisher,
            policy=lambda: self.policy,
            serve_revoked=self.serve_revoked,
            wake=wake,
            clock=lambda: self.now,
            bounds=Store(min_free_percent=0),  # how full this machine's disk is decides no test
        )

    def want(self, *names: str, image: str = IMAGE, digest: str | None = None) -> None:
        self.source.wanted = [WantedCache(CacheRef("ml-apps", name), image, digest) for name in names]

    def settle(self) -> bool:
        ready = self.agent.settle(Event())
        self.publisher.write()
        return ready

    def read_gpus(self, inventory: Inventory) -> None:
        self.gpus.now = inventory
        self.watch.refresh()

    def pointer(self, ref: CacheRef = REF) -> Pointer:
        found = pointers.load(self.layout, ref)
        assert found is not None
        return found

    def status(self, ref: CacheRef = REF) -> NodeCacheStatus:
        return self.sink.held[ref.namespace].caches[ref.name]

    def entries(self) -> set[str]:
        return {f"sha256:{path.name}" for path in self.layout.store.iterdir()}

    def mount(self, digest: str, volume_id: str = "csi-1", ref: CacheRef = REF, pod: str = "pod-foo") -> None:
        """Record a mounted volume, as the CSI process does."""
        record = VolumeRecord(volume_id, "/pods/x/mount", pod, "ml-apps", "uid", ref, digest, 1, "")
        records.save(self.layout, replace(record, start_time="2026-01-01T00:00:00Z"))

    def unmount(self, volume_id: str = "csi-1") -> None:
        records.remove(self.layout, volume_id)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "state", tmp_path / "run")


@pytest.fixture
def node(layout: Layout) -> Node:
    return Node(layout, FakeImages(layout, tags={IMAGE: digest_of("one")}))


@pytest.fixture(scope="session")
def nvml() -> Path:
    return nvml_library.build()


@pytest.fixture
def machine(tmp_path: Path, nvml: Path, registry: Registry) -> Machine:
    return machine_in(tmp_path, nvml, registry)


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi()
    api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "labels": LABELS}})
    return api


@pytest.fixture
def changed() -> Event:
    return Event()


@pytest.fixture
def source(api: FakeApi, changed: Event) -> Iterator[KubernetesSource]:
    source = KubernetesSource(api, "node-1", changed)
    source.start()
    assert source.wait(scaled(10))
    yield source
    source.stop()
