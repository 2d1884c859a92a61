"""Virtual agents that pull one image, in virtual time, with the agent's own pauses, jitter and paces.

Real code decides every time: gkm.images.registries.transport (pauses between requests), gkm_agent.caches.decisions
(pauses between pulls), gkm_agent.report.publisher (pace of status writes), gkm_operator.caches.rollout (open ranks).
"""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from gkm.api.caches import CacheSpec, CacheStatus, GKMCache
from gkm.api.meta import ObjectMeta
from gkm.api.rollouts import RolloutPolicy, is_open
from gkm.hoststate.names import CacheRef
from gkm.images.registries.transport import MAX_ATTEMPTS, MAX_DELAY_SECONDS, retry_delay
from gkm_agent.caches.decisions import next_attempt
from gkm_agent.caches.model import Attempt, WantedCache
from gkm_agent.report.publisher import PACE
from gkm_operator.caches.fleet import UnfinishedNodes
from gkm_operator.caches.rollout import SETTLE_SECONDS, opened
from gkm_operator.caches.throttling import LONGEST_SECONDS
from msgspec import structs
from rollout_registry import WHOLE, RegistryLimits, RegistryModel

DIGEST = f"sha256:{'1' * 64}"
WANTED = WantedCache(CacheRef("bench", "cache"), "registry.example/bench/cache:1", DIGEST)
SMALL_REQUESTS = 6
"""Referrers, a bundle's manifest and blob, the tag of legacy signatures, the image's manifest and configuration."""
LAYERS = 4
LAYER_MARKS = (40, 80, WHOLE)
"""Percentages of a layer at which the agent reports progress: some 10 % of the image, as gkm_agent.pulls.job does."""
ROUND_TRIP = 0.02
NODE_BANDWIDTH = 1.25e9
EXTRACT_SECONDS = 6.0
"""1.09 GB in 14,848 files on a disk, as bench/pull measures it on this project's machine."""
WATCH_SECONDS = 1.0
"""Within which every agent has seen the new object."""
LATEST_SECONDS = 100_000.0


@dataclass
class VirtualNode:
    """One agent: which request of the pull it is at, and its failures."""

    name: str
    step: int = 0
    request_attempt: int = 1
    layers: int = 0
    attempt: Attempt | None = None
    ready_at: float | None = None
    started: bool = False
    written_at: float = -1e9
    rounds: int = 0
    waiting_write: bool = False


@dataclass
class Simulation:
    """One rollout of an image of `size` bytes to `count` nodes."""

    count: int
    size: float
    limits: RegistryLimits
    at_a_time: int | None = None
    seed: int = 1
    nodes: list[VirtualNode] = field(default_factory=list)
    writes: Counter[int] = field(default_factory=Counter)
    """Writes of node objects by second."""
    retries: Counter[int] = field(default_factory=Counter)
    """Pulls that start again, by second."""
    _events: list[tuple[float, int, Callable[[float], None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        random.seed(self.seed)  # the pauses of the product come from this generator
        self.registry = RegistryModel(self.limits, NODE_BANDWIDTH)
        self.nodes = [VirtualNode(f"node-{number:05}") for number in range(self.count)]
        self._numbers = itertools.count()
        policy = RolloutPolicy(self.at_a_time) if self.at_a_time else None
        self._cache = GKMCache(ObjectMeta("cache", "bench"), CacheSpec(WANTED.image, rollout=policy), CacheStatus())

    def run(self) -> list[float]:
        """Run until every node is Ready; return the times at which they were, in order."""
        if self.at_a_time:
            self._at(SETTLE_SECONDS, self._open_ranks)
        for number in range(self.count):
            seen = random.uniform(0.0, WATCH_SECONDS)
            self._at(seen, lambda now, number=number: self._see(number, now))  # type: ignore[misc]
        while self._events or self.registry.next_mark():
            mark = self.registry.next_mark()
            if mark is not None and (not self._events or mark[0] <= self._events[0][0]):
                self._reach(*self.registry.take_mark(mark[0]), mark[0])
                continue
            now, _, act = heapq.heappop(self._events)
            if now > LATEST_SECONDS:
                raise RuntimeError("a node is not ready after a day")
            act(now)
        return sorted(node.ready_at for node in self.nodes if node.ready_at is not None)

    def _at(self, when: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), act))

    def _see(self, number: int, now: float) -> None:
        self._write(number, now)
        if not self.at_a_time:
            self._start(number, now)

    def _open_ranks(self, now: float) -> None:
        """Write the open ranks as the controllers do, and let the nodes see them."""
        unfinished = [node.name for node in self.nodes if node.ready_at is None]
        rollout = opened(self._cache, DIGEST, UnfinishedNodes(unfinished))
        self._cache = structs.replace(self._cache, status=CacheStatus(rollout=rollout))
        for number, node in enumerate(self.nodes):
            if not node.started and is_open(self._cache.spec.rollout, rollout, node.name, DIGEST):
                node.started = True
                seen = now + random.uniform(0.0, WATCH_SECONDS)
                self._at(seen, lambda when, number=number: self._start(number, when))  # type: ignore[misc]
        if unfinished:
            self._at(now + LONGEST_SECONDS, self._open_ranks)

    def _start(self, number: int, now: float) -> None:
        """Start a pull from its first request; whole layers are on the disk already."""
        node = self.nodes[number]
        node.step, node.request_attempt = 0, 1
        self._request(number, now)

    def _request(self, number: int, now: float) -> None:
        node = self.nodes[number]
        if not self.registry.admit(now):
            self._refused(number, now)
            return
        node.request_attempt = 1
        if node.step < SMALL_REQUESTS:
            node.step += 1
            self._at(now + ROUND_TRIP, lambda when: self._request(number, when))
            return
        self.registry.begin(number, self.size / LAYERS, LAYER_MARKS, now)

    def _refused(self, number: int, now: float) -> None:
        node, requested = self.nodes[number], self.limits.retry_after
        if requested <= MAX_DELAY_SECONDS and node.request_attempt < MAX_ATTEMPTS:
            node.request_attempt += 1
            pause = retry_delay(node.request_attempt, requested)
            self._at(now + pause, lambda when: self._request(number, when))
            return
        node.attempt = next_attempt(
            WANTED, node.attempt, transient=True, now=now, jitter=random.random(), retry_after=requested
        )
        self._write(number, now)
        self.retries[int(node.attempt.next_try)] += 1
        self._at(node.attempt.next_try, lambda when: self._start(number, when))

    def _reach(self, number: int, percent: int, now: float) -> None:
        node = self.nodes[number]
        self._write(number, now)
        if percent < WHOLE:
            return
        node.layers += 1
        if node.layers < LAYERS:
            self._request(number, now)
            return
        self._at(now + EXTRACT_SECONDS, lambda when: self._finish(number, when))

    def _finish(self, number: int, now: float) -> None:
        self.nodes[number].ready_at = now
        self._write(number, now)

    def _write(self, number: int, now: float) -> None:
        """Write the status of a node at once, or with the changes that follow within the publisher's pause."""
        node = self.nodes[number]
        if node.waiting_write:
            return
        due = node.written_at + PACE.pause(max(1, node.rounds))
        if now >= due:
            node.rounds, node.written_at = 1, now
            self.writes[int(now)] += 1
            return
        node.waiting_write = True

        def write(when: float) -> None:
            node.waiting_write, node.written_at = False, when
            node.rounds += 1
            self.writes[int(when)] += 1

        self._at(due, write)
