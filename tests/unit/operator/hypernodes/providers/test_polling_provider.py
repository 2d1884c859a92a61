"""Polling: how often a source is read, what is sent, and which names a group has."""

from collections.abc import Callable, Iterator

import pytest
from gkm.topology.fabrics.network import FabricDiscovery
from gkm.topology.fabrics.rails import TooIrregular
from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.providers import Action, ClusterNode, Event, ProviderFailed, Reply
from gkm_operator.hypernodes.providers import polling
from gkm_operator.hypernodes.providers.polling import Known, PollingProvider, SourceMissing, following
from gkm_operator.hypernodes.providers.view import LiveView
from support.topology.provider_run import ProviderRun


def leaf(name: str) -> FabricDiscovery:
    return FabricDiscovery((HyperNode(name, "leaf", (Member("Node", "n1"),)),))


class Clock:
    """Time that passes in readings and in pauses only; the provider stops after the pauses of a test."""

    def __init__(self, took: float, rounds: int) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        self._took = took
        self._rounds = rounds

    def read(self, _known: Known) -> FabricDiscovery:
        self.now += self._took
        return leaf("a")

    def monotonic(self) -> float:
        return self.now

    def is_set(self) -> bool:
        return len(self.pauses) >= self._rounds

    def set(self) -> None:
        self._rounds = 0

    def wait(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        return self.is_set()


@pytest.mark.parametrize(
    ("make", "took", "pause"),
    [
        (lambda read: PollingProvider("test", read, 10.0), 1.0, 10.0),
        (lambda read: PollingProvider("test", read, 10.0), 30.0, 120.0),
        (lambda read: following("test", read), 0.01, 1.0),
        (lambda read: following("test", read), 30.0, 120.0),
    ],
    ids=["interval", "slow", "view", "slow view"],
)
def test_reading_takes_a_fifth_of_the_time_at_most(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[polling.Read], PollingProvider], took: float, pause: float
) -> None:
    clock = Clock(took, rounds=3)
    monkeypatch.setattr(polling, "time", clock)
    provider = make(clock.read)
    monkeypatch.setattr(provider, "_stopped", clock)
    run = ProviderRun(provider)
    # A view that changes all the time makes no pause shorter.
    monkeypatch.setattr(run.view, "wait_for_change", lambda *_: run.view.publish([ClusterNode("n1")]))
    provider.start(run, run, run.view)
    assert clock.pauses == [pytest.approx(pause)] * 3


@pytest.mark.parametrize(
    ("seconds", "timeout", "stale"), [(10.0, 0.0, 300.0), (60.0, 60.0, 1_200.0), (86_400.0, 1.0, 864_010.0)]
)
def test_silence_of_ten_intervals_is_a_fault(seconds: float, timeout: float, stale: float) -> None:
    assert PollingProvider("test", lambda _: leaf("a"), seconds, timeout=timeout).stale_seconds == stale


def test_a_source_that_is_not_there_yet_is_reported_and_its_hypernodes_are_sent_once() -> None:
    results = iter([None, leaf("a"), leaf("a"), leaf("b")])

    def read(_known: Known) -> FabricDiscovery:
        result = next(results, leaf("b"))
        if result is None:
            raise SourceMissing("is away")
        return result

    with ProviderRun.of(PollingProvider("test", read, 0.01), "n1") as run:
        events = [run.next() for _ in range(4)]
        run.reply(Reply("b", "not written"))
        again = run.next(lambda event: event.action is Action.SNAPSHOT)
    assert events == [
        Event(Action.UPDATE, (), ("is away",)),
        Event(Action.SNAPSHOT, leaf("a").hypernodes),
        Event(Action.UPDATE, ()),
        Event(Action.SNAPSHOT, leaf("b").hypernodes),
    ]
    assert again.hypernodes == leaf("b").hypernodes


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (SourceMissing("is away"), "is away"),
        (TooIrregular("leaves share hosts"), "cannot use its network: leaves share hosts"),
    ],
    ids=["missing", "irregular"],
)
def test_a_source_that_is_lost_ends_the_provider_so_that_its_last_hypernodes_count_and_become_older(
    fault: Exception, why: str
) -> None:
    results: Iterator[FabricDiscovery | Exception] = iter([leaf("a"), fault])

    def read(_known: Known) -> FabricDiscovery:
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return result

    with ProviderRun.of(PollingProvider("test", read, 0.01), "n1") as run:
        assert run.next().action is Action.SNAPSHOT
        error = run.failure()
    assert isinstance(error, ProviderFailed)
    assert str(error) == why


def test_a_view_that_does_not_change_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "_HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(polling, "_CALM_SECONDS", 0.01)
    results = iter([leaf("a"), leaf("b")])
    with ProviderRun.of(following("test", lambda _: next(results)), "n1") as run:
        assert [run.next() for _ in range(3)] == [
            Event(Action.SNAPSHOT, leaf("a").hypernodes),
            Event(Action.UPDATE, ()),
            Event(Action.UPDATE, ()),
        ]
        run.reply(Reply("a", "not written"))
        assert run.next(lambda event: event.action is Action.SNAPSHOT).hypernodes == leaf("a").hypernodes
        run.view.publish([ClusterNode("n1")])
        assert run.next(lambda event: event.action is Action.SNAPSHOT).hypernodes == leaf("b").hypernodes


def test_names_that_were_sent_exist() -> None:
    seen: list[bool] = []

    def read(known: Known) -> FabricDiscovery:
        seen.append("a" in known.existing)
        return leaf("a")

    with ProviderRun.of(PollingProvider("test", read, 0.01), "n1") as run:
        run.next()
        run.next()
    assert seen[:2] == [False, True]


def test_names_from_before_the_start_exist_too() -> None:
    seen: list[tuple[bool, bool]] = []

    def read(known: Known) -> FabricDiscovery:
        seen.append(("a" in known.existing, "b" in known.existing))
        return leaf("a")

    run = ProviderRun(PollingProvider("test", read, 0.01), LiveView(frozenset({"b"})))
    with run.running():
        run.next()
        run.next()
    assert seen[:2] == [(False, True), (True, False)]
