"""Status on its way to a sink that may be away."""

import time
from threading import Event
from typing import ClassVar

import pytest
from gkm.api.nodes import NodeCacheStatus, NodeStatus
from gkm.gpus.values import Inventory
from gkm.hoststate.pacing import Backoff
from gkm.kube.errors import ApiError
from gkm_agent.gpus import GpuWatch
from gkm_agent.interfaces import NotWritten
from gkm_agent.report import publisher as module
from gkm_agent.report.publisher import StatusPublisher
from support.agent.fakes import A100, H100, FakeGpus, FakeSink
from support.host.waiting import scaled, until

SOON = Backoff(0.001, 0.002)
READY, FAILED = (NodeStatus(caches={"llama": NodeCacheStatus(state=state)}) for state in ("Ready", "Failed"))


def test_only_what_changed_is_written() -> None:
    sink = FakeSink()
    publisher = StatusPublisher(sink)
    publisher.set({"a": READY, None: READY})
    assert publisher.write()
    publisher.set({"a": FAILED, None: READY})
    assert publisher.write()

    assert sink.writes == ["a", None, "a"]
    assert sink.held == {"a": FAILED, None: READY}


def test_scopes_without_a_status_are_removed_also_after_a_restart() -> None:
    sink = FakeSink({"old": READY})
    publisher = StatusPublisher(sink)
    publisher.set({"new": READY})

    assert publisher.write()
    assert sink.held == {"new": READY}


def test_nothing_is_removed_before_the_first_status() -> None:
    sink = FakeSink({"old": READY})

    assert StatusPublisher(sink).write()
    assert sink.held == {"old": READY}


def test_while_the_sink_is_away_the_newest_waits() -> None:
    sink = FakeSink(away=True)
    publisher = StatusPublisher(sink)
    publisher.set({"a": READY})
    assert not publisher.write()
    publisher.set({"a": FAILED})
    assert not publisher.write()
    assert not publisher.flush(0)
    sink.away = False

    assert publisher.write()
    assert publisher.flush(0)
    assert sink.writes == ["a"]
    assert sink.held == {"a": FAILED}


def test_a_scope_that_fails_stops_no_other() -> None:
    class Picky(FakeSink):
        def publish(self, scope: str | None, status: NodeStatus) -> None:
            if scope == "terminating":
                raise NotWritten("the namespace is being deleted")
            super().publish(scope, status)

        def remove(self, scope: str | None) -> None:
            if scope == "stuck":
                raise NotWritten("not now")
            super().remove(scope)

    sink = Picky({"stuck": READY})
    publisher = StatusPublisher(sink)
    publisher.set({"terminating": READY, "a": READY})

    assert not publisher.write()
    assert sink.held == {"stuck": READY, "a": READY}


def test_a_namespace_whose_object_the_server_refuses_delays_no_other() -> None:
    class Picky(FakeSink):
        def publish(self, scope: str | None, status: NodeStatus) -> None:
            if scope == "terminating":
                raise NotWritten("the namespace is being deleted", refused=True)
            super().publish(scope, status)

    sink = Picky()
    publisher = StatusPublisher(sink, Backoff(3600.0, 3600.0), SOON)
    publisher.start()
    try:
        for status in (READY, FAILED):
            publisher.set({"terminating": status, "a": status})
            until(lambda status=status: sink.held == {"a": status}, "a change waits for the pause of another namespace")  # type: ignore[misc]
    finally:
        publisher.stop(10)


def test_a_server_that_requests_a_pause_gets_no_request_for_the_other_scopes() -> None:
    class Busy(FakeSink):
        tried: ClassVar[list[str | None]] = []

        def publish(self, scope: str | None, status: NodeStatus) -> None:
            del status
            self.tried.append(scope)
            raise NotWritten("too many requests", 7.0)

        def remove(self, scope: str | None) -> None:
            self.tried.append(scope)
            raise NotWritten("too many requests", 7.0)

    publisher = StatusPublisher(sink := Busy({"old": READY}))
    publisher.set({"a": READY, "b": READY, None: READY})

    assert not publisher.write()
    assert sink.tried == ["a"], "an overloaded server gets a request for each namespace, although it asked for a pause"


def test_its_thread_writes_what_is_set_and_tries_again() -> None:
    sink = FakeSink(away=True)
    publisher = StatusPublisher(sink, SOON, SOON)
    publisher.start()
    try:
        publisher.set({"a": READY})
        sink.away = False
        assert publisher.flush(10)
        publisher.set({"a": FAILED})
        assert publisher.flush(10)
        assert sink.held == {"a": FAILED}
    finally:
        publisher.stop(10)
    assert not publisher._thread.is_alive()


def test_a_defect_in_a_sink_does_not_end_the_reporting() -> None:
    class Defective(FakeSink):
        broken = True

        def publish(self, scope: str | None, status: NodeStatus) -> None:
            if self.broken:
                self.broken = False
                raise ZeroDivisionError
            super().publish(scope, status)

    sink = Defective()
    publisher = StatusPublisher(sink, SOON, SOON)
    publisher.start()
    try:
        publisher.set({"a": READY})
        assert publisher.flush(10)
    finally:
        publisher.stop(10)


def test_an_object_that_another_client_removed_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REFRESH_SECONDS", 0.05)

    class Listed(FakeSink):
        lists = 0

        def scopes(self) -> set[str | None]:
            self.lists += 1
            return super().scopes()

    sink = Listed()
    publisher = StatusPublisher(sink)
    publisher.start()
    try:
        publisher.set({"a": READY})
        assert publisher.flush(10)
        for _ in range(2):
            sink.held.clear()
            until(lambda: sink.held == {"a": READY}, "the status is there again")
    finally:
        publisher.stop(10)
    assert sink.lists == 1


def test_agents_that_started_together_do_not_write_together() -> None:
    times = [module._next_refresh() - time.monotonic() for _ in range(50)]

    assert max(times) <= module.REFRESH_SECONDS
    assert min(times) > module.REFRESH_SECONDS * 0.49
    assert max(times) - min(times) > module.REFRESH_SECONDS * 0.1


def test_pauses_grow_with_failures_and_obey_the_server() -> None:
    asked: list[tuple[int, float]] = []

    class Noted(Backoff):
        def pause(self, failures: int, at_least: float = 0.0) -> float:
            asked.append((failures, at_least))
            return 0.001

    class Refused(FakeSink):
        refusals: ClassVar = iter([ApiError(0, "", ""), ApiError(429, "", "", retry_after=7.0), ApiError(0, "", "")])

        def publish(self, scope: str | None, status: NodeStatus) -> None:
            if scope == "a" and (error := next(self.refusals, None)) is not None:
                raise NotWritten("refused", error.retry_after) from error
            super().publish(scope, status)

    sink = Refused()
    publisher = StatusPublisher(sink, Noted())
    publisher.start()
    try:
        publisher.set({"a": READY, "b": READY})
        assert publisher.flush(10)
        sink.away = True
        publisher.set({"a": FAILED, "b": READY})
        until(lambda: len(asked) >= 4, "it failed anew")
    finally:
        publisher.stop(10)
    assert asked[:4] == [(1, 0.0), (2, 7.0), (3, 0.0), (1, 0.0)]


def test_gpus_are_read_on_an_interval_and_a_change_wakes_the_agent() -> None:
    gpus, changed = FakeGpus(), Event()
    watch = GpuWatch(gpus, changed, interval=0.01)
    assert watch.inventory.unreadable  # nothing is known, which is not "no GPU"
    watch.start()
    try:
        assert watch.wait(scaled(10))
        assert watch.inventory == Inventory((H100,))
        changed.clear()
        gpus.now = Inventory((A100,))
        assert changed.wait(scaled(10))
        assert watch.inventory == Inventory((A100,))
    finally:
        watch.stop()
