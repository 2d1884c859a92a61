"""Content by digest: however many caches and namespaces name it, it is fetched once."""

from pathlib import Path
from threading import Event

from gkm.api.config import Config, Registries, RegistryHost, Store, Verification
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm_agent.caches.model import WantedCache
from gkm_agent.gpus import GpuWatch
from gkm_agent.pulls.images import NodeImages
from gkm_agent.reconcile.reconciler import Reconciler
from gkm_agent.report.publisher import StatusPublisher
from gkm_agent.store import node_cleanup as cleaning
from gkm_agent.store.pointers import PointerStore
from support.agent.fakes import H100, FakeGpus, FakeSink, FakeSource
from support.agent.store_images import files_of, put_image
from support.registry.server import Registry


def test_twenty_caches_in_ten_namespaces_cost_one_download_and_each_its_own_proof(
    tmp_path: Path, registry: Registry
) -> None:
    digest = put_image(registry.store, "team/cache", files_of("one", 20))
    layers = [layer["digest"] for layer in registry.store.repository("team/cache").manifests[digest].parsed()["layers"]]
    image = f"{registry.host}/team/cache@{digest}"
    wanted = [WantedCache(CacheRef(f"team-{number // 2}", f"cache-{number}"), image, digest) for number in range(20)]
    layout = Layout(tmp_path / "state", tmp_path / "run")
    cleaning.prepare(layout)
    config = Config(
        verification=Verification(mode="off"),
        registries=Registries(hosts={registry.host: RegistryHost(plain_http=True)}),
        store=Store(min_free_percent=0),
    )
    wake = Event()
    gpus = GpuWatch(FakeGpus(), wake)
    gpus.refresh()
    sink = FakeSink()
    publisher = StatusPublisher(sink)
    agent = Reconciler(
        store=PointerStore(layout),
        source=FakeSource(wanted),
        images=NodeImages.of(config, layout),
        gpus=gpus,
        publisher=publisher,
        policy=lambda: "policy",
        wake=wake,
        bounds=config.store,
    )

    assert agent.settle(Event())
    publisher.write()

    assert [len(registry.seen("GET", f"blobs/{layer}")) for layer in layers] == [1, 1]
    assert len(registry.seen("GET", f"manifests/{digest}")) >= 20
    assert len(list(layout.store.iterdir())) == 1
    assert {scope: set(status.caches) for scope, status in sink.held.items()} == {
        f"team-{number}": {f"cache-{2 * number}", f"cache-{2 * number + 1}"} for number in range(10)
    }
    assert all(cache.state == "Ready" for status in sink.held.values() for cache in status.caches.values())
    assert gpus.inventory.gpus == (H100,)
