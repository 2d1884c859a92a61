"""An hour without an API server, in time that only pauses move: few tries, few lines, no growth, and back at once."""

import gc
import logging
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import gkm
import gkm_agent
import pytest
from gkm.api.nodes import NodeCacheStatus, NodeStatus
from gkm.hoststate.pacing import Backoff
from gkm.kube.errors import ApiError
from gkm.kube.resources import GKMCACHENODES, GKMCACHES
from gkm_agent.kubernetes.sinks import KubernetesStatusSink
from gkm_agent.kubernetes.source import KubernetesSource
from gkm_agent.report import publisher as publishing
from gkm_agent.report.objects import without_conditions
from gkm_agent.report.publisher import StatusPublisher
from support.host.waiting import scaled, until
from support.kube.fake_api import FakeApi

HOUR = 3600.0
READING, WRITING = Backoff(), publishing.BACKOFF
SCOPES = 5
IMAGE = "registry.example/team/cache:1"
CACHE = {"apiVersion": "gkm.io/v1alpha1", "kind": "GKMCache", "spec": {"image": IMAGE}}


class Pauses(Event):
    """A stop event whose waits take no time: they are added up, and at `until` seconds the thread stands still."""

    def __init__(self, until: float) -> None:
        super().__init__()
        self.now = 0.0
        self.longest = 0.0
        self.count = 0
        self.until = until
        self.reached = Event()
        self._go = Event()

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.now += timeout
        self.longest = max(self.longest, timeout)
        self.count += 1
        if self.now >= self.until and not self.is_set():
            self.reached.set()
            self._go.wait()
        return self.is_set()

    def go_on(self, until: float) -> None:
        self.until = until
        self.reached.clear()
        self._go.set()
        self._go = Event()

    def end(self) -> None:
        self.set()
        self._go.set()


class Unkept(list[tuple[str, str, str]]):
    """The calls of a fake API that must not grow itself."""

    def append(self, _call: tuple[str, str, str], /) -> None: ...


class Agent:
    """The parts of an agent that talk with the API server, each in its own thread and its own time."""

    def __init__(self, api: FakeApi, until: float) -> None:
        self.publisher = StatusPublisher(KubernetesStatusSink(api, "node-1", lambda: self.source.node))
        self.source = KubernetesSource(api, "node-1", Event(), self.publisher.rewrite_all)
        self.parts = self.source._parts
        self.reading = [Pauses(until) for _ in self.parts]
        self.writing = Pauses(until)
        for part, pauses in zip(self.parts, self.reading, strict=True):
            vars(part)["_stopped"] = pauses
        self.publisher._stop = self.writing

    @property
    def pauses(self) -> list[Pauses]:
        return [*self.reading, self.writing]

    @property
    def threads(self) -> list[Thread | None]:
        return [*(vars(part)["_thread"] for part in self.parts), self.publisher._thread]

    def reach(self) -> None:
        for pauses in self.pauses:
            assert pauses.reached.wait(scaled(180)), "its thread has ended or stands still"

    def go_on(self, until: float) -> None:
        for pauses in self.pauses:
            pauses.go_on(until)

    def end(self) -> None:
        for pauses in self.pauses:
            pauses.end()
        self.publisher.stop(10)
        self.source.stop()


@pytest.fixture
def agent(api: FakeApi) -> Iterator[Agent]:
    """An agent that is connected, and stands still after its API server has been away for ten minutes."""
    api.create(GKMCACHES, CACHE | {"metadata": {"name": "kept", "namespace": "ns-0"}})
    made = Agent(api, HOUR / 6)
    made.source.start()
    made.publisher.start()
    try:
        assert made.source.wait(scaled(10))
        made.publisher.set(said("Ready"))
        assert made.publisher.flush(10)
        api.fault = lambda _verb, _plural: ApiError(0, "Unreachable", "the API server does not answer: refused")
        api.cut()
        made.publisher.set(said("Failed"))
        made.reach()
        yield made
    finally:
        made.end()


def said(state: str) -> dict[str | None, NodeStatus]:
    return {f"ns-{number}": NodeStatus(caches={"kept": NodeCacheStatus(state=state)}) for number in range(SCOPES)}


def test_in_an_hour_it_tries_as_often_as_its_longest_pause_allows(agent: Agent, api: FakeApi) -> None:
    agent.go_on(HOUR)
    agent.reach()

    for pauses, backoff in [*((pauses, READING) for pauses in agent.reading), (agent.writing, WRITING)]:
        assert pauses.longest <= backoff.cap
        # Half of a pause is left to chance; before the longest there are a few shorter ones.
        assert HOUR / backoff.cap <= pauses.count <= 2 * HOUR / backoff.cap + 10
    assert len([call for call in api.calls if call[0] == "list" and call[1] == GKMCACHENODES.plural]) == 1


def test_an_hour_without_the_api_server_has_one_log_line_per_attempt(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    before = sum(pauses.count for pauses in agent.pauses)
    caplog.clear()
    agent.go_on(HOUR)
    agent.reach()

    tries = sum(pauses.count for pauses in agent.pauses) - before
    assert 0 < len(caplog.records) <= tries
    assert all(not line.exc_info for line in caplog.records)


def test_an_hour_leaves_nothing_in_memory(agent: Agent, api: FakeApi) -> None:
    """What a test keeps of lines and calls is not the agent's: neither is kept, and only our files are measured."""
    only_ours = [tracemalloc.Filter(inclusive=True, filename_pattern=f"{path}/*") for path in _directories()]

    def held() -> int:
        gc.collect()
        return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(only_ours).traces)

    api.calls = Unkept()
    logging.disable(logging.CRITICAL)
    tracemalloc.start()
    try:
        agent.go_on(HOUR / 3)
        agent.reach()
        before, tries = held(), sum(pauses.count for pauses in agent.pauses)
        agent.go_on(12 * HOUR)
        agent.reach()
        more = sum(pauses.count for pauses in agent.pauses) - tries
        # A list that grows takes eight bytes a try, and what is in it more; the interpreter's own caches fill up once.
        assert held() - before < 8 * more
    finally:
        tracemalloc.stop()
        logging.disable(logging.NOTSET)


def test_after_an_hour_it_is_back_within_one_pause(agent: Agent, api: FakeApi) -> None:
    agent.go_on(HOUR)
    agent.reach()
    assert all(thread and thread.is_alive() for thread in agent.threads)
    assert [wanted.ref.name for wanted in agent.source.caches()] == ["kept"]
    assert agent.source.synced
    tries = [pauses.count for pauses in agent.pauses]

    api.fault = lambda _verb, _plural: None
    api.create(GKMCACHES, CACHE | {"metadata": {"name": "coming", "namespace": "ns-0"}})
    api.delete(GKMCACHES, "kept", "ns-0")
    agent.go_on(2 * HOUR)

    until(lambda: [wanted.ref.name for wanted in agent.source.caches()] == ["coming"], "what changed is seen")
    until(lambda: agent.publisher.flush(0), "what was to be said is said")
    for scope, status in said("Failed").items():
        assert without_conditions(api.get(GKMCACHENODES, "node-1", scope).status) == status
    # They had paused when the hour was over, and the next try went through.
    assert [pauses.count for pauses in agent.pauses] == tries


def _directories() -> list[str]:
    return [str(Path(str(package.__file__)).parent) for package in (gkm, gkm_agent)]
