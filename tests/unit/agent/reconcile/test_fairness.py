"""Slow registries of one namespace cost it time, and no other namespace."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Event, Lock

import pytest
from gkm.hoststate import waiting_pods as waiting
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState
from gkm.images.cache import CacheImage
from gkm.images.pulling.disk_reservations import DiskReservation
from gkm.images.pulling.entry import StoreEntry
from gkm.images.pulling.pull import Progress, PullStage
from gkm_agent.caches.model import WantedCache
from gkm_agent.pulls.scheduler import FAIR_PULL_SECONDS, MAX_PULLS
from gkm_agent.store.pointers import load_pointer
from support.agent.fakes import FakeImages, digest_of
from support.agent.node import Node
from support.host.waiting import until

PIECE_SECONDS = 0.01


@dataclass
class SlowImages(FakeImages):
    """Images of which those in the registry slow.example bring no byte until `go` is set."""

    go: Event = field(default_factory=Event)
    stage: PullStage = PullStage.DOWNLOADING
    slow: list[str] = field(default_factory=list)
    """The repositories that are slowly fetched from at this moment."""
    _held: Lock = field(default_factory=Lock)

    def fetch(self, image: CacheImage, progress: Progress, reservation: DiskReservation | None) -> StoreEntry:
        if not image.ref.name.startswith("slow.example/"):
            return super().fetch(image, progress, reservation)
        with self._held:
            self.slow.append(image.ref.name)
        try:
            while not self.go.wait(PIECE_SECONDS):
                progress(self.stage, 1)
        finally:
            with self._held:
                self.slow.remove(image.ref.name)
        return super().fetch(image, progress, reservation)


@dataclass
class Tenants:
    """A node and what its tenants want of it."""

    node: Node
    images: SlowImages

    def want(self, namespace: str, name: str, registry: str = "quick.example", content: str = "") -> CacheRef:
        """Ask for a cache in a repository of its own, with a content of its own where none is given."""
        image = f"{registry}/{namespace}/{name}:1"
        self.images.tags[image] = digest_of(content or image)
        ref = CacheRef(namespace, name)
        self.node.source.wanted = [*self.node.source.wanted, WantedCache(ref, image)]
        return ref

    def want_slow(self, namespace: str, count: int) -> list[CacheRef]:
        return [self.want(namespace, f"slow-{number}", "slow.example") for number in range(count)]

    def until_slow(self, count: int) -> None:
        self.node.agent.reconcile()
        until(lambda: len(self.images.slow) == count, f"{count} slow ones are being pulled")

    def until_ready(self, ref: CacheRef) -> None:
        until(lambda: self._turned(ref) is CacheState.READY, f"{ref} is ready")

    def slow_of(self, namespace: str) -> int:
        return sum(1 for name in list(self.images.slow) if f"/{namespace}/" in name)

    def _turned(self, ref: CacheRef) -> CacheState | None:
        self.node.agent.reconcile()
        pointer = load_pointer(self.node.layout, ref)
        return pointer.state if pointer else None


@pytest.fixture
def tenants(layout: Layout) -> Iterator[Tenants]:
    images = SlowImages(layout)
    node = Node(layout, images)
    yield Tenants(node, images)
    images.go.set()
    node.agent._pool.stop()


def test_one_namespace_never_has_all_workers(tenants: Tenants) -> None:
    tenants.want_slow("a", 10)
    tenants.until_slow(MAX_PULLS - 1)
    tenants.until_ready(tenants.want("b", "quick"))
    assert tenants.slow_of("a") == MAX_PULLS - 1
    tenants.images.go.set()
    assert tenants.node.settle()


def test_namespaces_share_the_workers_whichever_came_first(tenants: Tenants) -> None:
    tenants.want_slow("a", 10)
    tenants.want_slow("b", 10)
    tenants.until_slow(MAX_PULLS)
    assert (tenants.slow_of("a"), tenants.slow_of("b")) == (MAX_PULLS // 2, MAX_PULLS // 2)


def test_an_overdue_pull_gives_its_worker_to_a_waiting_cache_and_starts_again(tenants: Tenants) -> None:
    tenants.want_slow("a", MAX_PULLS - 1)
    tenants.want_slow("b", 1)
    tenants.until_slow(MAX_PULLS)
    ref = tenants.want("c", "quick")
    tenants.node.agent.reconcile()
    assert not tenants.node.agent._pool.overdue()
    assert load_pointer(tenants.node.layout, ref) is None
    tenants.node.now += FAIR_PULL_SECONDS + 1
    tenants.until_ready(ref)
    until(lambda: (tenants.node.agent.reconcile(), len(tenants.images.slow))[1] == MAX_PULLS, "it is taken up again")
    tenants.images.go.set()
    assert tenants.node.settle()


def test_no_pull_is_preempted_without_a_waiting_cache(tenants: Tenants) -> None:
    tenants.want_slow("a", 1)
    tenants.until_slow(1)
    tenants.node.now += FAIR_PULL_SECONDS + 1
    tenants.node.agent.reconcile()
    (pull,) = [running.pull for running in tenants.node.agent._pool._running.values()]
    assert not pull.token.cancelled


@pytest.mark.parametrize(
    ("stage", "urgent"),
    [(PullStage.EXTRACTING, False), (PullStage.DOWNLOADING, True)],
    ids=["extracted", "a pod waits"],
)
def test_pulls_that_are_not_preempted(tenants: Tenants, stage: PullStage, *, urgent: bool) -> None:
    tenants.images.stage = stage
    slow = [*tenants.want_slow("a", MAX_PULLS - 1), *tenants.want_slow("b", 1)]
    tenants.until_slow(MAX_PULLS)
    workers = tenants.node.agent._pool
    until(
        lambda: all(each.pull.extracting is (stage is PullStage.EXTRACTING) for each in workers._running.values()), "so"
    )
    for ref in slow if urgent else ():
        waiting.mark_waiting(tenants.node.layout, ref)
    tenants.want("c", "quick")
    tenants.node.now += FAIR_PULL_SECONDS + 1
    tenants.node.agent.reconcile()
    assert [each.pull.token.cancelled for each in workers._running.values()] == [False] * MAX_PULLS


def test_a_digest_that_another_repository_brings_slowly_is_pulled_from_ones_own(tenants: Tenants) -> None:
    slow = tenants.want("a", "slow", "slow.example", content="the same")
    tenants.until_slow(1)
    tenants.until_ready(tenants.want("b", "quick", content="the same"))
    assert tenants.images.slow == ["slow.example/a/slow"]
    assert tenants.node.agent._budget.figures().store == len(digest_of("the same"))
    tenants.images.go.set()
    tenants.until_ready(slow)
    assert tenants.node.entries() == {digest_of("the same")}


def test_caches_of_one_repository_still_share_one_pull(tenants: Tenants) -> None:
    first = tenants.want("a", "slow", "slow.example", content="the same")
    second = CacheRef("b", "other")
    tenants.node.source.wanted.append(WantedCache(second, tenants.node.source.wanted[0].image))
    tenants.node.agent.reconcile()
    until(lambda: tenants.images.steps().count("describe") == 2, "both know what they want")
    assert len(tenants.images.slow) <= 1
    tenants.images.go.set()
    tenants.until_ready(first)
    tenants.until_ready(second)
    assert tenants.images.steps().count("fetch") == 1
