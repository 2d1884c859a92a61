"""The controller watches Nodes and agents, and reports silent nodes in the status of caches."""

import time
from collections.abc import Callable, Iterator
from threading import Event

import pytest
from gkm.api.caches import CacheStatus
from gkm.hoststate.pacing import Backoff
from gkm.kube.errors import ApiError
from gkm.kube.resources import GKMCACHENODES, GKMCACHES, NODES
from gkm_operator.caches.controller import CachesController
from gkm_operator.caches.throttling import StatusInterval
from gkm_operator.caches.totals import AGENT_SETS, CacheKey
from gkm_operator.pods import PODS
from support.host.waiting import until
from support.kube.fake_api import FakeApi
from support.kube.listing import reflector_of
from support.kube.queues import is_idle
from support.operator.deployment import cache, node
from support.operator.images import DIGEST, GOOD, FakeImages
from support.operator.nodes import AGENT_SET, SYSTEM, agent_pod, kube_node, put

IMAGE = "registry.test/team/cache:1"
SOON = Backoff(0.001, 0.002)
READY = {"x": {"state": "Ready", "digest": DIGEST}}


class Watched:
    """A cache that the controllers look after, in a cluster of nodes that all have it."""

    def __init__(self, debounce: float = 0.0) -> None:
        self.api = FakeApi()
        self.debounce = debounce
        self.stop = Event()
        images = FakeImages({IMAGE: DIGEST}, {DIGEST: GOOD}, {DIGEST: 7})
        self.controller = CachesController(
            self.api, images, status_interval=StatusInterval(debounce, debounce), backoff=SOON
        )
        self.api.create(GKMCACHES, cache("x", IMAGE, "a"))

    def join(self, name: str) -> None:
        """Let a node join that has the cache."""
        put(self.api, NODES, kube_node(name))
        put(self.api, PODS, agent_pod(name))
        put(self.api, GKMCACHENODES, node(name, READY, "a"))

    def run(self) -> None:
        assert self.controller.watch(self.stop)
        self.controller.work()

    def until(self, ready: str, message: str = "") -> CacheStatus:
        """Wait for this status."""
        return until(lambda: self._said(ready, message), f"{ready} {message}")

    def _said(self, ready: str, message: str) -> CacheStatus | None:
        status = self.api.get(GKMCACHES, "x", "a").status
        condition = status.condition("Ready")
        return status if status.ready == ready and condition and message in condition.message else None

    def writes(self) -> int:
        return self.api.calls.count(("apply", GKMCACHES.plural, "x"))

    def until_quiet(self) -> None:
        queues = (self.controller.verification.queue, self.controller.status)
        until(lambda: all(is_idle(queue) for queue in queues), "nothing is left to do")


@pytest.fixture
def started() -> Iterator[Callable[[Watched], Watched]]:
    running: list[Watched] = []

    def start(watched: Watched) -> Watched:
        running.append(watched)
        watched.run()
        return watched

    yield start
    for watched in running:
        watched.stop.set()
        watched.controller.close()


@pytest.fixture
def watched(started: Callable[[Watched], Watched]) -> Watched:
    """Return a cluster of two nodes whose agents are Pods; both have the cache."""
    made = Watched()
    made.api.create(AGENT_SETS, AGENT_SET)
    for name in ("n1", "n2"):
        made.join(name)
    started(made).until("2/2")
    return made


def test_a_node_that_is_not_ready_is_silent_until_it_is(watched: Watched) -> None:
    put(watched.api, NODES, kube_node("n2", "Unknown"))
    status = watched.until("1/2", "1 of 2 nodes are ready, 0 failed, 1 silent: n2 (the Node is not ready)")
    assert (status.total_nodes, status.failed_nodes) == (2, 0)
    put(watched.api, NODES, kube_node("n2"))
    watched.until("2/2")


def test_a_node_whose_agent_is_not_ready_is_silent_until_it_is(watched: Watched) -> None:
    put(watched.api, PODS, agent_pod("n2", "False"))
    watched.until("1/2", "silent: n2 (its agent is not ready)")
    put(watched.api, PODS, agent_pod("n2"))
    watched.until("2/2")
    watched.api.delete(PODS, "gkm-agent-n2", SYSTEM)
    watched.until("1/2", "silent: n2 (its agent is not ready)")


def test_only_agents_in_our_namespace_with_their_label_are_watched(watched: Watched) -> None:
    foreign = agent_pod("n2", name="foreign")
    foreign["metadata"]["namespace"] = "a"
    other = agent_pod("n2", name="other")
    other["metadata"]["labels"] = {"app.kubernetes.io/name": "gkm-csi"}
    for pod in (foreign, other):
        put(watched.api, PODS, pod)
    watched.api.delete(PODS, "gkm-agent-n2", SYSTEM)
    watched.until("1/2", "silent: n2 (its agent is not ready)")


def test_a_node_that_leaves_is_not_counted_and_is_when_it_joins_again(watched: Watched) -> None:
    watched.api.delete(NODES, "n2")
    watched.until("1/1")
    put(watched.api, NODES, kube_node("n2"))
    watched.until("2/2")


def test_without_the_daemonset_the_node_alone_decides(watched: Watched) -> None:
    watched.api.delete(PODS, "gkm-agent-n2", SYSTEM)
    watched.until("1/2")
    watched.api.delete(AGENT_SETS, "gkm-agent", SYSTEM)
    watched.until("2/2")


def test_a_deletion_missed_by_the_watch_is_found_by_the_next_list(watched: Watched) -> None:
    for reflector in watched.controller.node_watcher.reflectors:
        reflector_of(reflector)._backoff = SOON
    watched.api.fault = lambda verb, _: ApiError(503, "", "away") if verb in {"list", "watch"} else None
    watched.api.cut()
    watched.api.delete(NODES, "n1")
    put(watched.api, PODS, agent_pod("n2", "False"))
    watched.api.forget_history()
    watched.api.fault = lambda _verb, _plural: None
    watched.until("0/1", "1 silent: n2")


def test_repeated_kubelet_status_writes_cause_no_work(watched: Watched) -> None:
    asked: list[object] = []
    watched.controller.node_watcher._changed = asked.append
    for number in range(20):
        status = kube_node("n1")["status"] | {"images": [{"names": [f"image-{number}"], "sizeBytes": 1}]}
        put(watched.api, NODES, kube_node("n1") | {"status": status})
    put(watched.api, NODES, kube_node("n2", "False"))
    until(lambda: asked, "the one that fell silent is told")
    assert asked == [("a", "x")]


def test_daemonset_status_writes_in_a_rollout_affect_no_node(watched: Watched) -> None:
    asked: list[bool] = []
    fleet = watched.controller.node_watcher.fleet
    real = fleet.agents_deployed

    def noted(*, deployed: bool) -> set[CacheKey]:
        asked.append(deployed)
        return real(deployed=deployed)

    fleet.agents_deployed = noted  # type: ignore[method-assign]
    for number in range(20):
        put(watched.api, AGENT_SETS, AGENT_SET | {"status": {"numberReady": number}})
    watched.api.delete(AGENT_SETS, "gkm-agent", SYSTEM)
    until(lambda: asked, "that it has gone is told")
    assert asked == [False]


def test_a_thousand_events_are_few_writes(started: Callable[[Watched], Watched]) -> None:
    watched = started(Watched(debounce=1.0))
    watched.until("0/0")
    began, before = time.monotonic(), watched.writes()
    for number in range(500):
        watched.join(f"n-{number}")
    status = watched.until("500/500")
    assert status.total_nodes == 500
    # The first after a second, then one a second at most, however slow this machine is.
    assert watched.writes() - before <= 1 + (time.monotonic() - began) / watched.debounce


def test_changes_before_the_start_become_one_write(started: Callable[[Watched], Watched]) -> None:
    watched = Watched()
    for number in range(100):
        watched.join(f"n-{number}")
    started(watched).until("100/100")
    watched.until_quiet()
    assert watched.writes() == 1
