"""Leaks are found by label and ownerReference, and deleted; what belongs to a living group never is.

The garbage collector is late here: it deletes most leaks itself.
"""

from collections.abc import Callable
from typing import Any

import pytest
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS
from gkm_operator.taskgroups.sweep import MAX_DELETIONS, REST_SECONDS
from support.kube.interposed_api import Call
from support.operator.group_witness import GROUPS, LABEL, NAMESPACE, RAW_TEMPLATES, UID_LABEL, an_object
from support.operator.plans import everything
from support.operator.taskgroups import Process, World


@pytest.fixture
def world() -> World:
    made = World()
    made.collects_orphans = False
    return made


def names(world: World) -> set[str]:
    found = everything(world.api, CONFIGMAPS)
    return {each["metadata"]["name"] for each in found if each["metadata"]["namespace"] == NAMESPACE}


def test_an_object_of_a_group_that_is_gone_is_deleted(world: World) -> None:
    world.group()
    process = Process(world)
    world.settle(process)
    world.owned("leaked", "another")
    world.owned("leaked-too", "another", group="never")
    world.settle(process)
    assert names(world) == {"files-g"}
    world.check()


def test_an_object_of_a_group_that_has_ended_is_deleted(world: World) -> None:
    uid = world.group()
    process = Process(world)
    world.settle(process)
    world.end()
    world.settle(process)
    world.owned("late", uid)
    world.settle(process)
    assert names(world) == set()
    world.check()


def test_a_group_waits_for_its_leaks_before_it_goes(world: World) -> None:
    uid = world.group()
    process = Process(world)
    world.settle(process)
    world.end()
    world.settle(process)
    world.owned("late", uid)
    world.api.merge(CONFIGMAPS, "late", {"metadata": {"finalizers": ["a.test/b"]}}, NAMESPACE)
    world.settle(process)
    world.delete()
    world.settle(process)
    assert world.groups() == ["g"]
    world.api.merge(CONFIGMAPS, "late", {"metadata": {"finalizers": None}}, NAMESPACE)
    world.settle(process)
    assert (world.groups(), names(world)) == ([], set())


def test_a_leak_of_a_kind_that_no_template_names_any_more_is_found_by_the_next_process(world: World) -> None:
    world.group()
    world.settle(Process(world))
    for template in everything(world.api, RAW_TEMPLATES):
        world.api.delete(RAW_TEMPLATES, template["metadata"]["name"])
    with world.api._lock:  # as if the operator were uninstalled, and the finalizer removed by force
        world.api.merge(GROUPS, "g", {"metadata": {"finalizers": None}}, NAMESPACE)
        world.delete()
    assert len(world.objects()) == 5
    world.settle(Process(world))
    assert world.objects() == []


def test_a_watch_of_groups_that_lags_costs_no_object(world: World) -> None:
    leader, late = Process(world), Process(world)
    world.settle(late)
    world.group()
    world.settle(leader)
    late.controller.kinds.load()
    late.work()
    late.observe("configmaps", "services", "secrets", "deployments", "computedomains")
    late.work()
    assert len(world.objects()) == 5
    world.check()


def test_nothing_is_deleted_while_the_group_cannot_be_read(world: World) -> None:
    uid = world.group()
    leader, late = Process(world), Process(world)
    world.settle(leader)
    late.controller.kinds.load()
    world.api.fault = lambda verb, plural: (
        ApiError(0, "Unreadable", "it cannot be decoded")
        if plural == "taskgroups" and verb in {"get", "list"} and late is not None
        else None
    )
    late.observe("grouptemplates", "pools", "pods")
    late.work()
    late.observe("configmaps")
    assert late.work()
    world.api.fault = lambda _verb, _plural: None
    assert world.api.get(GROUPS, "g", NAMESPACE)["metadata"]["uid"] == uid
    assert len(world.objects()) == 5


def test_what_a_stopped_leader_creates_after_the_end_is_found(world: World) -> None:
    read: list[Any] = []

    def around(call: Call, send: Callable[[], Any]) -> Any:  # noqa: ANN401 -- any answer
        """Stop the process after it has read the group, and before it creates an object."""
        if (call.verb, call.plural) != ("get", "taskgroups"):
            return send()
        if world.groups():
            read.append(send())
        return read[-1]

    stopped = Process(world, around)
    world.group()
    world.api.fault = lambda verb, plural: (
        ApiError(500, "InternalError", "not now") if (verb, plural) == ("create", "services") else None
    )
    world.settle(stopped)
    world.api.fault = lambda _verb, _plural: None
    leader = Process(world)
    world.settle(leader)
    world.delete()
    world.settle(leader)
    assert (world.groups(), world.objects()) == ([], [])
    stopped.work()  # it has not seen the end
    assert world.objects()
    world.settle(leader)
    assert world.objects() == []


def test_an_object_with_only_a_part_of_the_proof_is_no_leak_and_keeps_no_group(world: World) -> None:
    uid = world.group()
    process = Process(world)
    world.settle(process)
    world.end()
    world.settle(process)
    owner = {"apiVersion": GROUPS.api_version, "kind": GROUPS.kind, "name": "g", "uid": uid}
    for name, labels, owners in (
        ("a", {LABEL: "g", UID_LABEL: uid}, []),
        ("b", {LABEL: "g", UID_LABEL: uid}, [owner | {"uid": "another"}]),
        ("c", {LABEL: "g", UID_LABEL: uid}, [owner | {"kind": "Pool"}]),
        ("d", {LABEL: "g", UID_LABEL: uid}, [owner | {"apiVersion": "v1"}]),
        ("e", {LABEL: "g"}, [owner]),
        ("f", {LABEL: "g", UID_LABEL: "gone"}, [owner]),
        ("g", {LABEL: "g", UID_LABEL: uid}, [owner | {"name": ".."}]),
    ):
        body = an_object(CONFIGMAPS, name)
        body["metadata"] |= {"namespace": NAMESPACE, "labels": labels, "ownerReferences": owners}
        world.api.create(CONFIGMAPS, body)
    world.settle(process)
    world.delete()
    world.settle(process)
    assert names(world) == set("abcdefg")
    assert world.groups() == []


def test_a_label_moves_no_object_of_a_living_group_to_one_that_is_gone(world: World) -> None:
    world.group()
    process = Process(world)
    world.settle(process)
    world.api.merge(CONFIGMAPS, "files-g", {"metadata": {"labels": {LABEL: "gone"}}}, NAMESPACE)
    world.settle(process)
    assert names(world) == {"files-g"}
    world.end()
    world.settle(process)
    assert names(world) == set()
    world.check()


def test_a_group_of_another_namespace_is_another_one(world: World) -> None:
    world.owned("leaked", world.group(), group="elsewhere")
    process = Process(world)
    world.settle(process)
    assert names(world) == {"files-g"}
    assert len(world.objects()) == 5


def test_one_leak_that_does_not_go_is_no_hindrance_to_others(world: World) -> None:
    world.group()
    process = Process(world)
    world.settle(process)
    for name in ("a", "b", "c"):
        world.owned(name, "another")
    first = iter([True])
    world.api.fault = lambda verb, plural: (
        ApiError(500, "InternalError", "not now")
        if (verb, plural) == ("delete", "configmaps") and next(first, False)
        else None
    )
    process.observe()
    process.work()
    world.act()
    assert len(names(world) & {"a", "b", "c"}) == 1
    world.settle(process)
    assert names(world) == {"files-g"}


def ended_with_leaks(world: World, *leaked: str) -> None:
    """A group has ended, and a stopped leader created these of its objects late."""
    uid = world.group()
    process = Process(world)
    world.settle(process)
    world.end()
    world.settle(process)
    for name in leaked:
        world.owned(name, uid)


def deletions(world: World, *, fail: ApiError | None = None) -> list[str]:
    """The requests to delete a ConfigMap from now on."""
    sent: list[str] = []

    def fault(verb: str, plural: str) -> ApiError | None:
        if (verb, plural) != ("delete", "configmaps"):
            return None
        sent.append(plural)
        return fail

    world.api.fault = fault
    return sent


def test_a_pass_deletes_a_bounded_number_and_later_ones_the_rest(world: World) -> None:
    ended_with_leaks(world, *[f"leak-{number}" for number in range(60)])
    process, sent = Process(world), deletions(world)
    process.run()
    process.observe()
    assert process.controller.sweep.sweep((NAMESPACE, "g")) == REST_SECONDS
    assert len(sent) == MAX_DELETIONS == len(world.api.leaks)
    world.settle(process)
    assert names(world) == set()
    world.check()


@pytest.mark.parametrize("status", [0, 429])
def test_a_pass_ends_with_the_first_sign_that_the_api_server_is_away(status: int, world: World) -> None:
    ended_with_leaks(world, *[f"leak-{number}" for number in range(10)])
    process, sent = Process(world), deletions(world, fail=ApiError(status, "", "away"))
    process.run()
    process.observe()
    assert process.work()
    assert len(sent) == 1
    world.api.fault = lambda _verb, _plural: None
    world.settle(process)
    assert names(world) == set()


def test_many_leaks_that_do_not_go_are_no_hindrance_to_others(world: World) -> None:
    stuck = {f"stuck-{number}" for number in range(2 * MAX_DELETIONS)}
    ended_with_leaks(world, *sorted(stuck), "z-other")

    def refuse(call: Call, send: Callable[[], object]) -> object:
        if call.verb == "delete" and call.name in stuck:
            raise ApiError(403, "Forbidden", "a webhook refuses it")
        return send()

    process = Process(world, refuse)
    for _ in range(100):
        process.run()
        world.act()
    assert names(world) == stuck
