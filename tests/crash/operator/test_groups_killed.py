"""The controller of task groups is killed at each of its requests, or each fails: a new one, or the same, finishes.

Nothing is left, nothing of others is adopted or deleted, no finalizer stays, and every object is named before it is
created (the witness of support.operator.taskgroups).
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS
from support.kube.interposed_api import Around, Call, Killed, RequestCounter, failing_at, killed_at, unreliable
from support.operator.group_witness import (
    DEPLOYMENTS,
    DOMAINS,
    FIVE,
    GROUPS,
    NAMESPACE,
    RAW_POOLS,
    RAW_TEMPLATES,
    SERVICES,
    an_object,
)
from support.operator.plans import PODS
from support.operator.taskgroups import Process, World

Act = Callable[[World], object]


@dataclass(frozen=True)
class Scenario:
    """What users do one after the other, each when all is quiet, and how the group is then. None: it is gone."""

    acts: tuple[Act, ...]
    phase: str | None
    left: list[str] = field(default_factory=list)
    leaks: bool = False
    before: Act = lambda _world: None


def create(world: World) -> None:
    world.group()


def change_templates(world: World) -> None:
    """Templates and pool change and go: what was created is what the status names."""
    world.api.merge(RAW_TEMPLATES, "t1", {"spec": {"template": an_object(CONFIGMAPS, "other")}})
    world.api.merge(RAW_POOLS, "pool", {"spec": {"commonGroupTemplates": ["t1"]}})
    world.api.delete(RAW_TEMPLATES, "t2")


def delete_pool(world: World) -> None:
    world.api.delete(RAW_POOLS, "pool")


def remove_kind(world: World) -> None:
    world.remove_kind(DOMAINS)


def force(world: World) -> None:
    """Somebody removes our finalizer, and deletes the group."""
    world.api.merge(GROUPS, "g", {"metadata": {"finalizers": None}}, NAMESPACE)
    world.delete()


def again(world: World) -> None:
    world.group()
    world.end("Failed")


def create_and_delete(world: World) -> None:
    world.group()
    world.delete()


def create_and_cancel(world: World) -> None:
    world.group()
    world.end("Canceled")


def create_with_pods(world: World) -> None:
    """Create a group of two tasks with a pod each."""
    world.group(tasks=[{"name": "a"}, {"name": "b"}])
    world.pod("g-0")
    world.pod("g-1")


def finish(world: World) -> None:
    world.pod("g-0", "Succeeded")


def remove(world: World) -> None:
    """The time of a pod that succeeded is over."""
    world.api.delete(PODS, "g-0", NAMESPACE)


def finish_other(world: World) -> None:
    world.pod("g-1", "Succeeded")


NAMES = ["ComputeDomain domain-", "ConfigMap files-g", "Deployment proxy-g", "Secret certificates-g", "Service proxy-g"]
SCENARIOS = {
    "created": Scenario((create,), "Running", NAMES),
    "ended and deleted": Scenario((create, World.end, World.delete), None),
    "deleted": Scenario((create, World.delete), None),
    "created and deleted at once": Scenario((create_and_delete,), None),
    "ended before it began": Scenario((create_and_cancel,), "Canceled"),
    "ended by its pods": Scenario((create_with_pods, finish, finish_other), "Succeeded"),
    "ended by its pods, one of them removed": Scenario((create_with_pods, finish, remove, finish_other), "Succeeded"),
    "templates changed": Scenario((create, change_templates, delete_pool, World.end), "Succeeded"),
    "kind removed": Scenario((create, remove_kind, World.delete), None),
    "kind removed before": Scenario((remove_kind, create, World.delete), None),
    "finalizer removed": Scenario((create, force), None, leaks=True),
    "name taken": Scenario((create,), "Failed", before=lambda world: world.own(SERVICES, "proxy-g", spec={"a": "b"})),
    "name taken by the last": Scenario((create, World.delete), None, before=lambda w: w.own(DEPLOYMENTS, "proxy-g")),
    "created again": Scenario((create, World.delete, again), "Failed"),
}


def life(scenario: Scenario, world: World, process: Process) -> Process:
    """Live through the acts, with a new process after a death; return the last process."""
    for act in scenario.acts:
        act(world)
        try:
            world.settle(process)
        except Killed:
            process = Process(world)
            world.settle(process)
    return process


def check(world: World, scenario: Scenario, *, leaks: bool = False) -> None:
    """Check the end; a leak is found by the sweep, but only a process that does not lead any more may cause one."""
    world.check()
    assert leaks or scenario.leaks or world.api.leaks == []
    if scenario.phase is None:
        assert world.groups() == []
    else:
        assert world.phase() == scenario.phase
    found = world.objects()
    assert len(found) == len(scenario.left), found
    assert all(name.startswith(left) for name, left in zip(found, scenario.left, strict=True))


def prepared(scenario: Scenario) -> World:
    world = World(*FIVE)
    scenario.before(world)
    return world


def requests_of(scenario: Scenario) -> int:
    """The number of requests in a life that nothing disturbs."""
    counter = RequestCounter()
    world = prepared(scenario)
    life(scenario, world, Process(world, counter))
    check(world, scenario)
    return counter.count


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_process_killed_at_any_request_is_finished_by_the_next(name: str, *, after: bool) -> None:
    scenario = SCENARIOS[name]
    steps = requests_of(scenario)
    assert steps > 3
    for step in range(steps):
        world = prepared(scenario)
        life(scenario, world, Process(world, killed_at(step, after=after)))
        check(world, scenario)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("after", [False, True], ids=["unsent", "unanswered"])
def test_a_request_that_fails_is_made_up_for(name: str, *, after: bool) -> None:
    scenario = SCENARIOS[name]
    for step in range(requests_of(scenario)):
        world = prepared(scenario)
        life(scenario, world, Process(world, failing_at(step, after=after)))
        check(world, scenario)


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_api_server_that_goes_away_at_any_request_and_comes_back(name: str) -> None:
    scenario = SCENARIOS[name]
    for step in range(0, requests_of(scenario), 3):
        world = prepared(scenario)
        life(scenario, world, Process(world, _away(step, 6)))
        check(world, scenario)


def _away(first: int, length: int) -> Around:
    count = iter(range(1 << 30))

    def around(_call: Call, send: Callable[[], object]) -> object:
        if first <= next(count) < first + length:
            raise ApiError(0, "Unreachable", "the API server does not answer")
        return send()

    return around


@pytest.mark.parametrize("name", SCENARIOS)
def test_two_leaders_at_once_whose_caches_lag_converge(name: str) -> None:
    scenario = SCENARIOS[name]
    for seed in range(12):
        chance = random.Random(seed)
        world = prepared(scenario)
        around = unreliable(chance, 0.1, ApiError(500, "InternalError", "it did not arrive"))
        leaders = [Process(world, around) for _ in range(2)]
        for act in scenario.acts:
            act(world)
            for _ in range(30):
                leader = chance.choice(leaders)
                kinds = [each.resource.plural for each in leader.controller.watcher.watches]
                kinds += [each.resource.plural for each in leader.controller.kinds.reflectors]
                leader.observe(*chance.sample(kinds, len(kinds) // 2))
                leader.work()
                world.seconds += chance.choice((0.1, 31.0))
                if chance.random() < 0.5:
                    world.act()
        for leader in leaders:
            leader.leads = False
        world.settle(Process(world))
        check(world, scenario, leaks=True)


def test_a_process_that_leads_no_more_writes_nothing() -> None:
    world = World()
    process = Process(world)
    process.leads = False
    world.group()
    before = world.api._version
    for _ in range(3):
        process.run()
    assert world.api._version == before
    assert process.errors
