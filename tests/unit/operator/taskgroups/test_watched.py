"""What the controllers hold of a TaskGroup: little, whatever its users wrote; and nothing is lost by that."""

import gc
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import msgspec
import pytest
from gkm.api.mnnvl_metadata import MNNVL_READY
from gkm.api.task_groups import TaskGroup
from gkm.kube.errors import ApiError
from gkm.kube.informers import Informers
from gkm.kube.resources import CONFIGMAPS, TASKGROUPS
from gkm_operator.taskgroups.watcher import MAX_FINALIZERS, GroupWatcher, WatchedGroup
from support.kube.interposed_api import Call, Killed
from support.operator.group_witness import (
    DOMAINS,
    FINALIZER,
    GROUPS,
    JOBS,
    NAMESPACE,
    RAW_TEMPLATES,
    WitnessApi,
    an_object,
)
from support.operator.taskgroups import Process, World

LABELS = {f"{number:x}": "" for number in range(32)}
TASKS = [{"name": f"{number}", "labels": LABELS} for number in range(1024)]
MANIFEST = an_object(CONFIGMAPS, "files", data={f"{number:x}": "" for number in range(50_000)})
OBJECTS = [
    {"apiVersion": "v1", "kind": "ConfigMap", "name": f"files-{number}", "state": "Created", "uid": f"uid-{number}"}
    for number in range(5)
]
GROUP_COUNT = 4
HELD_BYTES = 16 << 10
"""Of a group with 1,024 tasks, of which the list of its tasks takes half."""


def stored(name: str, **status: Any) -> dict[str, Any]:  # noqa: ANN401 -- JSON
    """A TaskGroup of 770 kB, and many MB once it is decoded."""
    metadata = {"name": name, "namespace": NAMESPACE, "uid": name, "labels": LABELS}
    objects = [{**each, "manifest": MANIFEST} if not number else each for number, each in enumerate(OBJECTS)]
    head = {"apiVersion": TASKGROUPS.api_version, "kind": TASKGROUPS.kind, "metadata": metadata}
    return head | {"spec": {"pool": "pool", "tasks": TASKS}, "status": {"objects": objects, **status}}


def put(api: WitnessApi, value: dict[str, Any]) -> None:
    api.create(GROUPS, value)
    api.apply(GROUPS, value, field_manager="test", subresource="status")


def held_bytes(*roots: object) -> int:
    """Bytes of everything that can be reached from values, but code."""
    seen: dict[int, object] = {}
    waiting = list(roots)
    while waiting:
        value = waiting.pop()
        if id(value) not in seen and not isinstance(value, type | ModuleType | FunctionType):
            seen[id(value)] = value
            waiting += gc.get_referents(value)
    return sum(map(sys.getsizeof, seen.values()))


@pytest.mark.parametrize("phase", ["Pending", "Running", "Succeeded"])
def test_a_watched_group_takes_little_memory_in_every_phase(phase: str) -> None:
    api = WitnessApi()
    for number in range(GROUP_COUNT):
        put(api, stored(f"g{number}", phase=phase))
    watcher = GroupWatcher(api, Informers(api), lambda _key: None)
    watcher.groups._list()
    text = len(msgspec.json.encode(stored("g", phase=phase)))
    assert text > 700_000
    assert len(watcher.groups.values()) == GROUP_COUNT
    assert held_bytes(watcher.groups._entries) / GROUP_COUNT < HELD_BYTES < text / 40


def test_the_last_writes_take_little_memory_too() -> None:
    api = WitnessApi()
    watcher = GroupWatcher(api, Informers(api), lambda _key: None)
    for number in range(GROUP_COUNT):
        watcher.wrote(msgspec.convert(stored(f"g{number}"), TaskGroup))
    assert held_bytes(watcher._written) / GROUP_COUNT < HELD_BYTES


def test_what_decides_about_a_group_is_held() -> None:
    whole = msgspec.convert(stored("g", phase="Running", outcome="Failed", podsSeen=True), TaskGroup)
    held = WatchedGroup.of(whole)
    assert (held.spec.phase, len(held.spec.tasks)) == (whole.spec.phase, 1024)
    assert [each.manifest for each in held.status.objects] == [None] * 5
    assert [(each.kind, each.name, each.uid, each.state) for each in held.status.objects] == [
        (each.kind, each.name, each.uid, each.state) for each in whole.status.objects
    ]
    assert (held.status.phase, held.status.outcome, held.status.pods_seen) == ("Running", "Failed", True)


def ready(world: World, uid: str, status: str) -> None:
    text = f'{{"type":"MNNVLReady","status":"{status}","reason":"AllNodesReady","message":"why",'
    text += '"lastTransitionTime":"2026-03-01T00:00:00Z"}'
    world.api.merge(DOMAINS, f"domain-{uid}", {"metadata": {"annotations": {MNNVL_READY: text}}}, NAMESPACE)


def manifests(world: World) -> list[bool]:
    return ["manifest" in each for each in world.status()["objects"]]


def test_a_process_that_never_saw_the_manifests_leaves_them_in_the_status() -> None:
    world = World()
    uid = world.group()
    world.settle(Process(world))
    before = world.status()["objects"]
    ready(world, uid, "False")
    world.settle(Process(world))
    assert world.condition("MNNVLReady")[0] == "False"
    assert world.status()["objects"] == before
    assert sum(manifests(world)) == 4  # not that of the Secret


def test_the_objects_of_a_group_that_another_process_planned_are_those_of_its_status() -> None:
    world = World()
    world.api.fault = lambda verb, plural: (
        ApiError(500, "InternalError", "not now") if (verb, plural) == ("create", "configmaps") else None
    )
    world.group()
    world.settle(Process(world))
    world.api.fault = lambda _verb, _plural: None
    assert (world.phase(), sum(manifests(world))) == ("Pending", 4)
    world.api.merge(RAW_TEMPLATES, "t1", {"spec": {"template": {"data": {"a": "changed"}}}})
    world.settle(Process(world))
    assert world.phase() == "Running"
    assert world.api.get(CONFIGMAPS, "files-g", NAMESPACE)["data"] == {"a": "w"}
    assert sum(manifests(world)) == 4
    world.check()


def test_a_group_whose_objects_another_process_created_gets_all_of_them_in_its_status() -> None:
    world = World()
    world.group()

    def around(call: Call, send: Callable[[], Any]) -> Any:  # noqa: ANN401 -- any answer
        if (call.verb, call.plural) == ("merge", "taskgroups") and len(world.objects()) == 5:
            raise Killed
        return send()

    killed = Process(world, around)
    with pytest.raises(Killed):
        world.settle(killed)
    assert (world.phase(), len(world.objects())) == ("Pending", 5)
    before = world.status()["objects"]
    leader = Process(world)
    leader.leads = False
    for _ in range(3):
        leader.run()  # it sees the objects before it leads
    leader.leads = True
    world.settle(leader)
    assert world.phase() == "Running"
    uids = [each["uid"] for each in world.status()["objects"]]
    assert world.status()["objects"] == [
        each | {"state": "Created", "uid": uid} for each, uid in zip(before, uids, strict=True)
    ]
    assert all(uids)
    world.check()


def test_a_group_that_ends_loses_its_manifests_at_once() -> None:
    world = World()
    world.group()
    process = Process(world)
    world.settle(process)
    world.end()
    process.run()
    assert (world.phase(), any(manifests(world))) == ("Ending", False)
    world.settle(process)
    assert (world.phase(), world.objects()) == ("Succeeded", [])
    world.check()


def test_finalizers_of_others_stay_however_many_they_are() -> None:
    world = World()
    others = [f"a.test/{number}" for number in range(2 * MAX_FINALIZERS)]
    world.group()
    world.api.merge(GROUPS, "g", {"metadata": {"finalizers": others}}, NAMESPACE)
    process = Process(world)
    world.settle(process)
    assert world.api.get(GROUPS, "g", NAMESPACE)["metadata"]["finalizers"] == [*others, FINALIZER]
    world.delete()
    world.settle(process)
    assert world.phase() == "Canceled"
    assert world.api.get(GROUPS, "g", NAMESPACE)["metadata"]["finalizers"] == others


@pytest.mark.parametrize("annotations", [None, [], "text", {"gkm.io/nvlink-min-bandwidth-gbps": {"a": 1}}])
def test_a_manifest_of_another_form_holds_no_threshold(annotations: object) -> None:
    manifest = {"metadata": {"annotations": annotations}}
    objects = [{"apiVersion": JOBS.api_version, "kind": JOBS.kind, "name": "j", "manifest": manifest}]
    held = msgspec.convert({**stored("g"), "status": {"objects": objects}}, WatchedGroup)
    assert held.status.objects[0].manifest is None
