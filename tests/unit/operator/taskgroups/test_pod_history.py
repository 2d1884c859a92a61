"""Task pods that are removed after they succeeded, and how long a group has been without a running pod."""

import string

from gkm.api.meta import ObjectMeta
from gkm.api.task_groups import TaskGroup, TaskGroupSpec, TaskGroupStatus
from gkm_operator.pods import PodMetadata, PodStatus, WatchedPod
from gkm_operator.taskgroups.members import GroupInventory
from gkm_operator.taskgroups.observer import GroupObserver
from support.operator.group_witness import LABEL, NAMESPACE
from support.operator.plans import PODS
from support.operator.taskgroups import Process, World

QUIET = 620.0


def running(world: World, tasks: int, names: str = "", **spec: str) -> Process:
    """A group with running pods of these names, as its status shows."""
    world.group(tasks=[{"name": f"t{number}"} for number in range(tasks)], **spec)
    process = Process(world)
    world.settle(process)
    pods(world, process, **dict.fromkeys(names, "Running"))
    assert (world.phase(), world.status().get("podsSeen", False)) == ("Running", bool(names))
    return process


def pods(world: World, process: Process, **phases: str) -> None:
    """Let pods change, and the process see it."""
    for name, phase in phases.items():
        world.pod(name, phase)
    process.run()


def remove(world: World, process: Process, *names: str) -> None:
    for name in names:
        world.api.delete(PODS, name, NAMESPACE)
    process.run()


def pass_time(world: World, process: Process, seconds: float) -> None:
    end = world.seconds + seconds
    while world.seconds < end:
        world.seconds += 10.0
        process.run()
        world.act()


def writes(world: World) -> int:
    return sum(call[:2] == ("merge", "taskgroups") for call in world.api.calls)


def test_a_pod_that_succeeded_and_was_removed_counts(world: World) -> None:
    process = running(world, 4, "abcd")
    pods(world, process, a="Succeeded")
    remove(world, process, "a")
    pods(world, process, b="Succeeded", c="Succeeded", d="Running")
    remove(world, process, "b", "c")
    pods(world, process, d="Succeeded")
    world.settle(process)
    assert world.phase() == "Succeeded"


def test_it_counts_for_the_next_process(world: World) -> None:
    process = running(world, 2, "ab")
    pods(world, process, a="Succeeded")
    remove(world, process, "a")
    pods(world, Process(world), b="Succeeded")
    world.settle(Process(world))
    assert world.phase() == "Succeeded"


def test_a_pod_that_succeeded_a_minute_ago_counts_though_nothing_runs_while_it_is_removed(world: World) -> None:
    process = running(world, 2, "ab")
    pods(world, process, a="Succeeded")
    pass_time(world, process, 70)
    world.api.delete(PODS, "a", NAMESPACE)
    pods(world, Process(world), b="Succeeded")
    world.settle(Process(world))
    assert world.phase() == "Succeeded"


def test_a_pod_that_another_of_its_name_replaced_counts(world: World) -> None:
    process = running(world, 2, "ab")
    pods(world, process, a="Succeeded")
    world.api.delete(PODS, "a", NAMESPACE)
    pods(world, process, a="Running")
    pods(world, process, a="Failed", b="Succeeded")
    world.settle(process)
    assert world.phase() == "Succeeded"


def test_pods_that_failed_or_ran_when_they_were_removed_do_not_count(world: World) -> None:
    process = running(world, 3, "abc")
    pods(world, process, a="Failed")
    remove(world, process, "a", "b")
    pods(world, process, c="Succeeded")
    pass_time(world, process, QUIET)
    world.settle(process)
    assert world.phase() == "Failed"


def test_no_pod_counts_twice(world: World) -> None:
    process = running(world, 3, "abc")
    pods(world, process, a="Succeeded")
    pass_time(world, process, 70)
    remove(world, process, "a")
    process = Process(world)
    pods(world, process, b="Succeeded")
    remove(world, process, "b")
    pods(world, process, c="Failed")
    pass_time(world, process, QUIET)
    world.settle(process)
    assert world.phase() == "Failed"


def test_pods_of_an_earlier_group_of_the_name_that_go_do_not_count(world: World) -> None:
    world.pod("old", "Succeeded", created=-60)
    process = running(world, 1)
    remove(world, process, "old")
    pass_time(world, process, QUIET)
    assert (world.phase(), "podsSeen" in world.status()) == ("Running", False)


def test_pods_of_no_group_evict_none_that_count(world: World) -> None:
    process = running(world, 2, "ab")
    pods(world, process, a="Succeeded")
    world.api.delete(PODS, "a", NAMESPACE)
    process.observe("pods")
    for number in range(10_000):
        metadata = PodMetadata(f"p{number}", NAMESPACE, f"uid-of-p{number}", labels={LABEL: f"no-group-{number}"})
        process.controller.watcher._pod(WatchedPod(metadata, status=PodStatus("Succeeded")), None)
    pods(world, process, b="Succeeded")
    world.settle(process)
    assert world.phase() == "Succeeded"


def test_pods_that_end_within_a_minute_cost_one_write_in_all(world: World) -> None:
    names = string.ascii_lowercase
    process = running(world, len(names), names)
    before = writes(world)
    for name in names[1:]:
        pods(world, process, **{name: "Succeeded"})
        world.seconds += 1.0
    assert writes(world) == before
    pass_time(world, process, 60)
    assert (writes(world), len(world.status()["succeededPods"])) == (before + 1, len(names) - 1)
    pods(world, process, a="Succeeded")
    world.settle(process)
    assert (world.phase(), world.status().get("succeededPods")) == ("Succeeded", None)


def test_the_status_names_no_more_pods_than_there_are_tasks(world: World) -> None:
    process = running(world, 2)
    pods(world, process, x="Running", **{f"p{number}": "Succeeded" for number in range(9)})
    remove(world, process, *(f"p{number}" for number in range(9)))
    assert len(world.status()["succeededPods"]) == 2
    before = writes(world)
    pass_time(world, process, 200)
    assert writes(world) == before


def test_nothing_is_written_for_pods_of_a_group_that_the_engine_ends(world: World) -> None:
    process = running(world, 2, "ab", phase="Running")
    pods(world, process, a="Succeeded")
    before = writes(world)
    pass_time(world, process, 70)
    remove(world, process, "a", "b")
    pass_time(world, process, QUIET)
    assert (world.phase(), writes(world)) == ("Running", before)


def test_without_tasks_pods_may_follow_one_after_the_other(world: World) -> None:
    process = running(world, 0)
    for name in "abc":
        pods(world, process, **{name: "Running"})
        pods(world, process, **{name: "Succeeded"})
        pass_time(world, process, 500)
        assert world.phase() == "Running"
    remove(world, process, *"abc")
    pass_time(world, process, 200)
    assert world.phase() == "Succeeded"


def test_a_group_is_quiet_from_the_end_of_its_last_pod(world: World) -> None:
    process = running(world, 2)
    pods(world, process, a="Failed")
    pass_time(world, process, 500)
    pods(world, process, b="Running")
    pass_time(world, process, 500)
    pods(world, process, b="Failed")
    pass_time(world, process, 500)
    assert world.phase() == "Running"
    pass_time(world, process, 200)
    assert world.phase() == "Failed"


def test_many_other_groups_do_not_reset_the_time_of_a_quiet_one(world: World) -> None:
    process = running(world, 0)
    observer = GroupObserver(
        world.api, process.controller.watcher, GroupInventory(), now=lambda: "", clock=lambda: world.seconds
    )

    def quiet_seconds(name: str, *, pods_seen: bool) -> float:
        metadata = ObjectMeta(name=name, namespace=NAMESPACE, uid=f"uid-of-{name}")
        status = TaskGroupStatus(phase="Running", pods_seen=pods_seen)
        return observer.observe(TaskGroup(metadata, TaskGroupSpec(pool="p"), status), {}, None).pods.quiet_seconds

    assert quiet_seconds("quiet", pods_seen=True) == 0
    world.seconds += 300.0
    for number in range(10_000):
        assert quiet_seconds(f"running-{number}", pods_seen=False) == 0
    assert quiet_seconds("quiet", pods_seen=True) == 300
