"""The controller of ComputeDomains is killed at each of its requests, or each fails: a new one, or the same, finishes.

Nothing leaks, nothing required is missing, and no finalizer stays for ever.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from support.grove.objects import NAMESPACE, compute_domain
from support.kube.interposed_api import (
    Around,
    InterposedApi,
    Killed,
    RequestCounter,
    failing_at,
    killed_at,
    unreliable,
)
from support.operator.domains import DOMAINS, NVIDIA, OURS, SETS, TEMPLATES, Process, World, grouped
from support.operator.plans import PODS, everything, gpu_pod

Change = Callable[[World], object]


@dataclass(frozen=True)
class Scenario:
    """What was there, what changes, and the domains that GKM has to have in the end, by number where names may vary."""

    before: Change
    change: Change
    after: int


def nothing(_world: World) -> None:
    """An empty cluster."""


def job(world: World) -> None:
    owner = world.controller("batch/v1 Job", "job")
    for number in range(2):
        world.pod(f"job-{number}", "train", owners=[owner])


def second_job(world: World) -> None:
    world.pod("late-0", "train", owners=[world.controller("batch/v1 Job", "late")])


def job_goes(world: World) -> None:
    world.api.delete(world.kind("batch/v1 Job"), "job", NAMESPACE)


def lose(world: World) -> None:
    world.api.delete(DOMAINS, "test-pcs-1", NAMESPACE)


def orphan(world: World) -> None:
    """`kubectl delete --cascade=orphan`."""
    for domain in world.domains():
        world.api.merge(DOMAINS, domain, {"metadata": {"ownerReferences": None}}, NAMESPACE)
    world.delete_set()


def taken(world: World) -> None:
    world.api.create(DOMAINS, compute_domain("test-pcs-1"))


def again(world: World) -> None:
    world.delete_set()
    world.create_set(replicas=2)


def on_dead_node(world: World) -> None:
    world.create_set(replicas=2)
    world.settle(a_process(world))
    pod = gpu_pod("test-pcs-0-worker", "dead", 8, namespace=NAMESPACE)
    pod["metadata"]["finalizers"] = ["test/kubelet"]
    pod["spec"]["resourceClaims"] = [{"name": "mnnvl-claim", "resourceClaimTemplateName": "test-pcs-0"}]
    world.api.create(PODS, pod)


def again_over_dead_node(world: World) -> None:
    world.api.delete(PODS, "test-pcs-0-worker", NAMESPACE)
    again(world)


def a_process(world: World, sends: Api | None = None) -> Process:
    """A process to whom every pod that is being deleted is overdue."""
    made = Process(world.api, sends=sends)
    made.pass_time(3600.0)
    return made


SCENARIOS = {
    "created": Scenario(nothing, lambda world: world.create_set(replicas=2), 2),
    "created with groups": Scenario(
        nothing, lambda world: world.create_set("s", *grouped("a", "b"), annotations={}, replicas=2), 4
    ),
    "created beside a foreign name": Scenario(taken, lambda world: world.create_set(replicas=2), 2),
    "scaled out": Scenario(lambda world: world.create_set(), lambda world: world.scale(3), 3),
    "scaled in": Scenario(lambda world: world.create_set(replicas=3), lambda world: world.scale(1), 1),
    "scaled to zero": Scenario(lambda world: world.create_set(replicas=2), lambda world: world.scale(0), 0),
    "set deleted": Scenario(lambda world: world.create_set(replicas=2), lambda world: world.delete_set(), 0),
    "set created again": Scenario(lambda world: world.create_set(replicas=2), again, 2),
    "set created again over a dead node": Scenario(on_dead_node, again_over_dead_node, 2),
    "set orphans its domains": Scenario(lambda world: world.create_set(replicas=2), orphan, 0),
    "lost": Scenario(lambda world: world.create_set(replicas=2), lose, 2),
    "label": Scenario(nothing, job, 1),
    "label of a second workload": Scenario(job, second_job, 1),
    "labeled workload deleted": Scenario(job, job_goes, 0),
}


def prepared(scenario: Scenario) -> World:
    world = World()
    scenario.before(world)
    world.settle(a_process(world))
    for domain in world.made():
        world.use(domain["metadata"]["name"], 1)
    world.settle(a_process(world))
    scenario.change(world)
    return world


def run_with(world: World, around: Around) -> None:
    """Let a process with such requests run until it is killed or done."""
    process = a_process(world, InterposedApi(world.api, around))
    with suppress(Killed):
        world.settle(process)
        pods_end(world)
        world.settle(process)


def finish(world: World, *processes: Process) -> None:
    """Let new processes do the rest."""
    world.settle(*processes)
    pods_end(world)
    world.settle(*processes)


def pods_end(world: World) -> None:
    """The pods of domains that are being deleted end."""
    for domain in everything(world.api, DOMAINS):
        if "deletionTimestamp" in domain["metadata"]:
            world.use(domain["metadata"]["name"], 0)


def check(world: World, scenario: Scenario) -> None:
    made = world.made()
    assert len(made) == scenario.after, world.domains()
    for domain in made:
        meta = domain["metadata"]
        assert "deletionTimestamp" not in meta
        assert sorted(meta["finalizers"]) == sorted([OURS, NVIDIA])
        assert meta["ownerReferences"]
    templates = [one["metadata"]["labels"].get(NVIDIA) for one in everything(world.api, TEMPLATES)]
    assert sorted(templates) == sorted(one["metadata"]["uid"] for one in everything(world.api, DOMAINS))


def requests_of(scenario: Scenario) -> int:
    """The number of requests of a process that nothing disturbs."""
    counter = RequestCounter()
    world = prepared(scenario)
    run_with(world, counter)
    check(world, scenario)
    return counter.count


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_process_killed_at_any_request_is_finished_by_the_next(name: str, *, after: bool) -> None:
    scenario = SCENARIOS[name]
    steps = requests_of(scenario)
    assert steps > 0
    for step in range(steps):
        world = prepared(scenario)
        run_with(world, killed_at(step, after=after))
        finish(world, a_process(world))
        check(world, scenario)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("after", [False, True], ids=["unsent", "unanswered"])
def test_a_request_that_fails_is_made_up_for(name: str, *, after: bool) -> None:
    scenario = SCENARIOS[name]
    for step in range(requests_of(scenario)):
        world = prepared(scenario)
        run_with(world, failing_at(step, after=after))
        check(world, scenario)


@pytest.mark.parametrize("name", SCENARIOS)
def test_two_leaders_at_once_whose_caches_lag_converge(name: str) -> None:
    scenario = SCENARIOS[name]
    for seed in range(12):
        chance = random.Random(seed)
        world = prepared(scenario)
        around = unreliable(chance, 0.15, ApiError(409, "Conflict", "the object has been modified"))
        leaders = [a_process(world, InterposedApi(world.api, around)) for _ in range(2)]
        for leader in leaders:
            leader.observe()
        for _ in range(40):
            leader = chance.choice(leaders)
            leader.observe(*chance.sample([kind.plural for kind in (SETS, DOMAINS, TEMPLATES, PODS)], 2))
            leader.work()
            if chance.random() < 0.5:
                world.act()
        finish(world, *(a_process(world) for _ in range(2)))
        check(world, scenario)
