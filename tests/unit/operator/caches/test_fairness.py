"""A tenant whose registry is silent holds up no other tenant's caches."""

from threading import Event

from gkm.kube.resources import GKMCACHES
from gkm_operator.caches.controller import CachesController
from gkm_operator.caches.throttling import StatusInterval
from gkm_operator.caches.verification import PER_NAMESPACE
from support.host.waiting import scaled, until
from support.kube.fake_api import FakeApi
from support.operator.deployment import cache
from support.operator.images import DIGEST, GOOD, FakeImages

IMAGE, SILENT = "registry.test/team/cache:1", "silent.test/team/cache:1"


class SilentImages(FakeImages):
    """Images of which one lies in a registry that does not answer until `go` is set."""

    def __init__(self, go: Event) -> None:
        super().__init__({IMAGE: DIGEST, SILENT: DIGEST}, {DIGEST: GOOD})
        self._go = go

    def resolve(self, image: str) -> str:
        digest = super().resolve(image)
        if image == SILENT:
            self._go.wait(scaled(30))
        return digest


def test_a_silent_registry_of_one_namespace_does_not_block_another() -> None:
    api, go, stop = FakeApi(), Event(), Event()
    images = SilentImages(go)
    controller = CachesController(api, images, status_interval=StatusInterval(0.0, 0.0))
    for number in range(50):
        api.create(GKMCACHES, cache(f"x-{number}", SILENT, "a"))
    try:
        assert controller.watch(stop)
        controller.work()
        until(lambda: images.asked.count(("resolve", SILENT)) == PER_NAMESPACE, "the silent one is asked")
        api.create(GKMCACHES, cache("y", IMAGE, "b"))
        until(lambda: api.get(GKMCACHES, "y", "b").status.resolved_digest == DIGEST, "the other tenant is served")
        assert images.asked.count(("resolve", SILENT)) == PER_NAMESPACE
    finally:
        go.set()
        stop.set()
        controller.close()
