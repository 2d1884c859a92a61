"""The controller with its threads, against an API in memory: its watches, its requests, its start and its end."""

import threading
from collections import Counter
from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import pytest
from gkm.api.config import Config
from gkm.hoststate.pacing import Backoff
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS
from gkm_operator import metrics
from gkm_operator.taskgroups import controller as taskgroups_controller
from gkm_operator.taskgroups.controller import PER_NAMESPACE, TaskGroupsBlocked, TaskGroupsController
from support.host.waiting import scaled, until
from support.operator.group_witness import (
    DOMAINS,
    FIVE,
    GROUPS,
    ON,
    SYSTEM,
    FakeRenderer,
    an_object,
)
from support.operator.plans import everything
from support.operator.taskgroups import World

SOON = Backoff(0.001, 0.002)
WRITES = frozenset({"create", "merge", "apply", "delete"})


@pytest.fixture
def world() -> Iterator[World]:
    """A world whose garbage collector runs."""
    made, stop = World(), Event()

    def collect() -> None:
        while not stop.wait(0.01):
            made.act()

    thread = Thread(target=collect, daemon=True)
    thread.start()
    yield made
    stop.set()
    thread.join(scaled(10))


@pytest.fixture
def controller(world: World) -> Iterator[TaskGroupsController]:
    made = new(world)
    yield made
    made.close()


def new(world: World, config: Config = ON) -> TaskGroupsController:
    return TaskGroupsController(world.api, config, namespace=SYSTEM, renderer=FakeRenderer(), backoff=SOON)


def test_groups_live_and_end(world: World, controller: TaskGroupsController) -> None:
    controller.work()
    world.group(tasks=[{"name": "t"}])
    until(lambda: world.phase() == "Running", "the group to run")
    world.pod("p", "Succeeded", created=10**9)
    until(lambda: world.phase() == "Succeeded", "its end")
    assert world.objects() == []
    world.delete()
    until(lambda: world.groups() == [], "it to go")
    metrics.record_depths([controller])
    page = metrics.page().body.decode()
    for line in (
        'gkm_reconcile_seconds_count{controller="taskgroups",result="done"}',
        'gkm_queue_depth{controller="task-group-leaks"}',
        'gkm_task_groups{phase="Running"}',
        'gkm_task_group_objects_total{result="created"}',
        'gkm_task_group_objects_total{result="deleted"}',
    ):
        assert line in page
    world.check()


def test_five_objects_cost_sixteen_requests_in_their_life(world: World, controller: TaskGroupsController) -> None:
    controller.work()
    world.group("first")
    until(lambda: world.phase("first") == "Running", "the kinds to be known")
    counted = Counting(world)
    names = [f"g{number}" for number in range(10)]
    for name in names:
        world.group(name)
    for name in names:
        until(lambda: world.phase(name) == "Running", "a group to run")  # noqa: B023 -- called at once
        world.end(name=name)
    for name in names:
        until(lambda: world.phase(name) == "Succeeded", "a group to end")  # noqa: B023 -- called at once
        world.delete(name)
    until(lambda: world.groups() == ["first"], "them to go")
    assert counted.requests == Counter(create=50, delete=50, merge=60)
    world.check()


class Counting:
    """The requests of other threads than that of the test and of the garbage collector."""

    def __init__(self, world: World) -> None:
        self.requests: Counter[str] = Counter()
        called = world.api._called

        def record(verb: str, resource: Any, detail: str) -> None:  # noqa: ANN401 -- of any type
            name = threading.current_thread().name
            if name.startswith("task") and verb not in {"list", "watch"} and resource.plural != "pools":
                self.requests[verb] += 1
            called(verb, resource, detail)

        world.api._called = record  # type: ignore[method-assign]


def test_leaks_are_found_at_the_start(world: World) -> None:
    body = an_object(CONFIGMAPS, "gkm-task-group-kinds", data={"ConfigMap": ""})
    body["metadata"]["namespace"] = SYSTEM
    world.api.create(CONFIGMAPS, body)
    world.collects_orphans = False
    world.owned("leaked", "u")
    controller = new(world)
    controller.work()
    until(lambda: world.objects() == [], "the leak to go")
    assert world.api.leaks == ["ConfigMap leaked"]
    controller.close()


def test_it_waits_for_an_api_server_that_is_away(world: World, controller: TaskGroupsController) -> None:
    world.group()
    away = ApiError(0, "Unreachable", "away")
    world.api.fault = lambda _verb, _plural: away
    controller.work()
    until(lambda: len(world.api.calls) > 10, "it has tried")
    world.api.fault = lambda _verb, _plural: None
    until(lambda: world.phase() == "Running", "the group to run", 60)


def test_a_kind_that_is_removed_while_watches_run_does_not_stop_the_end(
    world: World, controller: TaskGroupsController
) -> None:
    controller.work()
    world.group()
    until(lambda: world.phase() == "Running", "the group to run")
    world.remove_kind(DOMAINS)
    world.delete()
    until(lambda: world.groups() == [], "the group to go")
    assert world.objects() == []


def test_a_namespace_whose_objects_are_slow_leaves_workers_to_others(
    world: World, controller: TaskGroupsController
) -> None:
    go, waiting = Event(), list[str]()
    real = world.api.create

    def create(resource: Any, value: Any, **options: Any) -> Any:  # noqa: ANN401 -- as the API has it
        if value["metadata"].get("namespace") == "slow" and options.get("field_manager"):
            waiting.append(value["metadata"]["name"])
            assert go.wait(scaled(60))
        return real(resource, value, **options)

    world.api.create = create  # type: ignore[method-assign]
    controller.work()
    for number in range(20):
        body = an_object(GROUPS, f"s{number}", spec={"pool": "pool", "workflow": {"id": "w"}})
        body["metadata"]["namespace"] = "slow"
        world.api.create(GROUPS, body)
    until(lambda: len(waiting) == PER_NAMESPACE, "as many slow requests as a namespace may have")
    world.group()
    until(lambda: world.phase() == "Running", "the group of another namespace to run")
    assert len(waiting) == PER_NAMESPACE
    go.set()
    slow = [f"s{number}" for number in range(20)]
    until(lambda: all(_phase(world, name) == "Running" for name in slow), "the others to run", 60)


def _phase(world: World, name: str) -> str:
    return str(world.api.get(GROUPS, name, "slow").get("status", {}).get("phase"))


def test_without_the_switch_only_deleted_groups_end(world: World, controller: TaskGroupsController) -> None:
    controller.work()
    world.group("kept")
    world.group("deleted")
    until(lambda: world.phase("kept") == world.phase("deleted") == "Running", "the groups to run")
    controller.close()
    world.group("new")
    off = new(world, Config())
    off.check()
    off.work()
    world.delete("deleted")
    until(lambda: world.groups() == ["kept", "new"], "the deleted group to go")
    off.close()
    assert (world.phase("kept"), world.status("new")) == ("Running", {})
    assert len(world.objects()) == len(FIVE)
    world.check()


@pytest.mark.parametrize("status", [403, 404])
def test_without_the_switch_and_the_rights_it_asks_once_and_waits(world: World, status: int) -> None:
    world.api.fault = lambda _verb, _plural: ApiError(status, "", "no list of it")
    off, before = new(world, Config()), len(world.api.calls)
    off.check()
    off.work()
    until(lambda: len(world.api.calls) > before, "the request")
    off.close()
    assert off.ended
    assert len(world.api.calls) == before + 1


def test_deleted_groups_end_without_a_restart_when_the_rights_come_back(
    world: World, controller: TaskGroupsController, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller.work()
    world.group("deleted")
    until(lambda: world.phase("deleted") == "Running", "the group to run")
    controller.close()
    world.delete("deleted")
    monkeypatch.setattr(taskgroups_controller, "REFUSED_SECONDS", 0.01)
    world.api.fault = lambda _verb, plural: ApiError(403, "", "no") if plural == "taskgroups" else None
    off, before = new(world, Config()), len(world.api.calls)
    off.work()
    until(lambda: len(world.api.calls) > before, "the refused request")
    world.api.fault = lambda _verb, _plural: None
    until(lambda: world.groups() == [], "the deleted group to go")
    off.close()


@pytest.mark.parametrize("status", [403, 404])
@pytest.mark.parametrize("plural", ["grouptemplates", "pools", "taskgroups"])
def test_a_missing_kind_or_right_ends_the_process_with_what_to_apply(plural: str, status: int, world: World) -> None:
    controller = new(world)
    controller.check()
    world.api.fault = lambda verb, asked: (
        ApiError(status, "", "no list of it") if (verb, asked) == ("list", plural) else None
    )
    with pytest.raises(TaskGroupsBlocked, match=f"{plural} cannot be listed.* components/task-groups"):
        controller.check()
    world.api.fault = lambda verb, _plural: ApiError(503, "", "later") if verb == "list" else None
    with pytest.raises(ApiError, match="later"):
        controller.check()


def test_the_groups_of_all_phases_are_counted(world: World, controller: TaskGroupsController) -> None:
    controller.work()
    for number in range(3):
        world.group(f"g{number}")
    until(lambda: 'gkm_task_groups{phase="Running"} 3.0' in metrics.page().body.decode(), "three running groups")
    world.end(name="g1")
    until(lambda: 'gkm_task_groups{phase="Succeeded"} 1.0' in metrics.page().body.decode(), "an ended group")
    assert len(FIVE) * 2 == len(world.objects())
    assert len(everything(world.api, GROUPS)) == 3
