"""The frame of controllers: the specification of start and shutdown."""

from collections.abc import Callable, Iterator, Sequence
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from gkm.hoststate.pacing import Backoff
from gkm.kube.api import Api
from gkm.kube.controller import JOIN_SECONDS, WATCHES_SECONDS, Controller, close_watches, end, stop_all
from gkm.kube.elector import Elector
from gkm.kube.errors import ApiError
from gkm.kube.leases import LEASES
from gkm.kube.reflector import Reflector
from gkm.kube.resources import CONFIGMAPS, NODES, Json, Resource
from gkm.kube.workqueue import WorkQueue
from gkm_operator.controllers import LEASE_PATIENCE_SECONDS
from support.host.waiting import scaled, until
from support.kube.fake_api import FakeApi
from support.kube.interposed_api import Call, InterposedApi
from support.kube.leading import leading

KINDS: tuple[Resource[Any], ...] = (CONFIGMAPS, NODES)
SOON = Backoff(0.001, 0.002)


class Writer(Controller):
    """A controller that watches two kinds and makes an object of each key."""

    def __init__(self, api: Api, name: str = "writer") -> None:
        super().__init__(name)
        self._api = api
        self._kinds = [Reflector[Json](api, kind.of(dict), lambda _old, _new: None, backoff=SOON) for kind in KINDS]
        self.queue: WorkQueue[str] = WorkQueue(name, self._write, workers=1, backoff=SOON)
        self.queues = [self.queue]
        self.queue.add("a")
        self.polls = 0

    def reflectors(self) -> Sequence[Reflector[Any]]:
        return self._kinds

    def wait(self, condition: Callable[[], bool], seconds: float = float("inf")) -> bool:
        def counted() -> bool:
            self.polls += 1
            return condition()

        return super().wait(counted, seconds)

    @property
    def has_waited_or_begun(self) -> bool:
        return self.polls > 3 or not self._thread.is_alive()

    def _write(self, key: str) -> None:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{self.name}-{key}", "namespace": "ns"}}
        self._api.create(CONFIGMAPS, body)


class Process:
    """A process with two controllers and a lease; `requests` has everything that it sent, in order."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.requests: list[Call] = []
        self.hold: Callable[[Call], None] = lambda _call: None
        sent = InterposedApi(self.api, self._around)
        self.now = 0.0
        self.elector = Elector(sent, "ns", "lease", "me", clock=lambda: self.now)
        leader = leading(sent, lambda: self.elector.is_leader)
        self.controllers = [Writer(leader, "one"), Writer(leader, "two")]

    def _around(self, call: Call, send: Callable[[], Any]) -> object:
        self.hold(call)
        self.requests.append(call)
        return send()

    def start(self) -> None:
        assert self.elector.try_acquire_or_renew()
        for controller in self.controllers:
            controller.work()

    def shut_down(self, seconds: float = 5.0) -> None:
        """As gkm_operator.controllers does."""
        if stop_all(self.controllers, seconds):
            self.elector.release()
        close_watches(self.controllers)

    def writes(self, *, of_lease: bool = False) -> list[Call]:
        return [call for call in self.requests if call.writes and (call.plural == LEASES.plural) == of_lease]


@pytest.fixture
def process() -> Iterator[Process]:
    made = Process()
    yield made
    made.hold = lambda _call: None
    made.shut_down()


def test_no_controller_writes_before_each_of_its_lists_is_complete(process: Process) -> None:
    let_go = Event()

    def hold(call: Call) -> None:
        if (call.verb, call.plural) == ("list", NODES.plural):
            let_go.wait(scaled(30))

    process.hold = hold
    process.start()
    until(lambda: [c.plural for c in process.requests if c.verb == "list"] == [CONFIGMAPS.plural] * 2, "one list each")
    until(lambda: all(each.has_waited_or_begun for each in process.controllers), "they wait for the other list")
    assert [thread.ident for each in process.controllers for thread in each.queue._threads] == [None, None]
    let_go.set()
    until(lambda: len(process.writes()) == 2, "both write")


def test_a_list_that_fails_is_repeated_before_the_first_write(process: Process) -> None:
    failures = iter([True] * 3)
    process.api.fault = lambda verb, plural: (
        ApiError(503, "ServiceUnavailable", "")
        if (verb, plural) == ("list", NODES.plural) and next(failures, False)
        else None
    )
    process.start()
    until(lambda: len(process.writes()) == 2, "both write")
    assert next(failures, None) is None


def test_an_old_leader_writes_nothing(process: Process) -> None:
    process.start()
    until(lambda: len(process.writes()) == 2, "both write")
    process.now += process.elector._timing.deadline
    before = len(process.writes())
    for controller in process.controllers:
        controller.queue.add("b")
    until(lambda: all(each.queue._failures.get("b", 0) > 1 for each in process.controllers), "both were refused")
    assert len(process.writes()) == before


def test_the_lease_is_released_after_the_last_write(process: Process) -> None:
    began, let_go = Event(), Event()

    def hold(call: Call) -> None:
        if call.writes and call.plural != LEASES.plural:
            began.set()
            let_go.wait(scaled(30))

    process.hold = hold
    process.start()
    assert began.wait(scaled(30))
    for controller in process.controllers:
        controller.stop()
    let_go.set()
    process.shut_down(scaled(30))
    assert process.requests[-1].plural == LEASES.plural
    assert process.api.get(LEASES, "lease", "ns").spec.holder_identity == ""


def test_a_write_that_begins_after_the_release_is_not_sent(process: Process) -> None:
    """Where a thread did not end in time: it waited for something else than the API server."""
    process.start()
    until(lambda: len(process.writes()) == 2, "both write")
    process.shut_down()
    before = len(process.requests)
    with pytest.raises(Exception, match="no longer holds the lease"):
        process.controllers[0]._write("late")
    assert len(process.requests) == before


def test_the_lease_is_kept_where_the_next_leader_must_not_write_yet(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Writer, "is_quiet", property(lambda self: self.name != "two"))
    process.start()
    process.shut_down()
    assert process.api.get(LEASES, "lease", "ns").spec.holder_identity == "me"


class Clock:
    """Time that passes only where a thread is waited for, which never ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("gkm.kube.controller.time", SimpleNamespace(monotonic=lambda: self.now))

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return False


def test_the_requests_under_way_have_one_time_for_all_controllers(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty that hang end as late as one."""
    clock = Clock(monkeypatch)
    leader = process.controllers[0]._api
    controllers = [Writer(leader, str(number)) for number in range(20)]
    monkeypatch.setattr(WorkQueue, "close", lambda _queue, seconds: clock.wait(seconds))
    assert stop_all(controllers, 5.0)
    assert clock.now == 105.0
    assert not any(controller.ended for controller in controllers)


def test_the_ends_of_watches_have_one_time_for_all_of_a_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    monkeypatch.setattr(Reflector, "close", lambda _reflector, seconds: clock.wait(seconds))
    end([Reflector[Json](FakeApi(), NODES.of(dict), lambda _old, _new: None) for _ in range(20)], 2.0)
    assert clock.now == 102.0


def test_everything_ends_within_the_time_that_kubelet_leaves() -> None:
    """The last requests; a renewal of the lease that is under way, and its release; the watches."""
    termination_grace_period = 20.0
    assert termination_grace_period > JOIN_SECONDS + 2 * LEASE_PATIENCE_SECONDS + WATCHES_SECONDS


def test_a_controller_that_is_switched_off_starts_nothing() -> None:
    controller = Controller("off", enabled=False)
    controller.work()
    assert controller._thread.ident is None
    assert controller.close()


def test_an_action_is_repeated_after_its_pause_and_at_once_when_it_is_woken() -> None:
    class Looking(Controller):
        looks = 0

        def run(self) -> None:
            self.repeat(self._look, SOON)

        def _look(self) -> float:
            self.looks += 1
            return 3600.0

    controller = Looking("looking")
    controller.work()
    until(lambda: controller.looks == 1, "the first look")
    controller.wake()
    until(lambda: controller.looks == 2, "the second look")
    controller.close()
    assert controller.ended


@pytest.mark.parametrize("error", [ApiError(0, "Unreachable", "away"), RuntimeError("a defect")])
def test_an_action_that_fails_is_tried_again_and_each_cause_is_logged(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    errors = iter([error] * 3)

    def act() -> str:
        if (found := next(errors, None)) is not None:
            raise found
        return "done"

    assert Controller("any").attempt(act, SOON) == "done"
    lines = [record.message for record in caplog.records]
    assert lines == ["controller failed, tried again"] * (1 if isinstance(error, ApiError) else 3)


def test_an_action_is_tried_once_though_the_process_ends_at_once() -> None:
    done: list[int] = []

    class Copying(Controller):
        def run(self) -> None:
            self.repeat(self._copy, SOON)

        def _copy(self) -> float:
            done.append(1)
            return 60.0

    controller = Copying("copying")
    controller.work()
    controller.close()
    assert done == [1]
