"""A controller on an API and images in memory, to start, stop and query."""

from threading import Event
from typing import Any

from gkm.api.caches import CacheStatus
from gkm.hoststate.pacing import Backoff
from gkm.kube.resources import (
    CLUSTERGKMCACHENODES,
    CLUSTERGKMCACHES,
    GKMCACHENODES,
    GKMCACHES,
    NODES,
    Json,
    Resource,
)
from gkm_operator.caches.controller import CachesController
from gkm_operator.caches.throttling import StatusInterval
from gkm_operator.caches.totals import CacheKey
from support.host.waiting import until
from support.kube.fake_api import FakeApi
from support.kube.queues import is_idle
from support.operator.deployment import cache, node
from support.operator.images import DIGEST, GOOD, OTHER, FakeImages
from support.operator.nodes import kube_node, put

IMAGE, NEXT = "registry.test/team/cache:1", "registry.test/team/cache:2"
SOON = Backoff(0.001, 0.002)
KEY = CacheKey("a", "x")


class Site:
    def __init__(self) -> None:
        self.api = FakeApi()
        self.images = FakeImages({IMAGE: DIGEST, NEXT: OTHER}, {DIGEST: GOOD, OTHER: GOOD}, {DIGEST: 7})
        self.stop = Event()
        self.controller = self.new()

    def new(self) -> CachesController:
        return CachesController(self.api, self.images, status_interval=StatusInterval(0.0, 0.0), backoff=SOON)

    def run(self) -> None:
        assert self.controller.watch(self.stop)
        self.controller.work()

    def restart(self) -> None:
        self.controller.close()
        self.controller = self.new()
        self.run()

    def create(self, name: str = "x", image: str = IMAGE, namespace: str | None = "a") -> None:
        resource: Resource[Any] = GKMCACHES if namespace else CLUSTERGKMCACHES
        self.api.create(resource, cache(name, image, namespace))

    def report(self, name: str, caches: Json, namespace: str | None = "a") -> None:
        resource: Resource[Any] = GKMCACHENODES if namespace else CLUSTERGKMCACHENODES
        put(self.api, NODES, kube_node(name))
        put(self.api, resource, node(name, caches, namespace))

    def status(self, name: str = "x") -> CacheStatus:
        return self.api.get(GKMCACHES, name, "a").status

    def verified(self, name: str = "x") -> tuple[str, str]:
        found = self.status(name).condition("Verified")
        return (found.status, found.reason) if found else ("", "")

    def until_verified(self, reason: str = "CosignSuccess", name: str = "x") -> CacheStatus:
        until(lambda: self.verified(name)[1] == reason, f"{name} is {reason}")
        return self.status(name)

    def writes(self) -> int:
        plurals = (GKMCACHES.plural, CLUSTERGKMCACHES.plural)
        return sum(1 for verb, plural, _ in list(self.api.calls) if verb == "apply" and plural in plurals)

    def quiet(self) -> None:
        """Wait until every queue is empty and no worker is busy."""
        queues = (self.controller.verification.queue, self.controller.status)
        until(lambda: all(is_idle(queue) for queue in queues), "nothing is left to do")
