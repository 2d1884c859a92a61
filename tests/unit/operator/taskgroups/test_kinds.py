"""The kinds that groups ever got: remembered before the first object, watched while they are served."""

import pytest
from gkm.api.task_group_rights import NAME
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS
from gkm_operator.taskgroups import kinds
from support.operator.group_witness import DOMAINS, SERVED, SYSTEM, FakeRenderer, an_object
from support.operator.taskgroups import Process, World


def remembered(world: World) -> set[str]:
    return set(world.api.get(CONFIGMAPS, NAME, SYSTEM)["data"])


def watched(process: Process) -> set[str]:
    return {each.resource.plural for each in process.controller.kinds.reflectors}


def remember(world: World, **data: str) -> None:
    body = an_object(CONFIGMAPS, NAME, data=data)
    body["metadata"]["namespace"] = SYSTEM
    world.api.create(CONFIGMAPS, body)


def test_the_kinds_of_a_group_are_remembered_and_watched_by_the_next_process(world: World) -> None:
    world.group()
    world.settle(Process(world))
    names = {"ConfigMap", "Secret", "Service", "Deployment.apps", "ComputeDomain.resource.nvidia.com"}
    assert remembered(world) == names
    process = Process(world)
    assert watched(process) == set()
    process.run()
    assert watched(process) == {"configmaps", "secrets", "services", "deployments", "computedomains"}
    assert process.controller.kinds.synced is False
    process.observe()
    assert process.controller.kinds.synced


def test_two_leaders_remember_the_kinds_of_both(world: World) -> None:
    remember(world, **{"PodGroup.scheduling.volcano.sh": ""})
    world.group()
    world.settle(Process(world))
    assert len(remembered(world)) == 6


def test_a_kind_that_is_not_served_is_watched_when_it_is(world: World) -> None:
    domains = next(each for each in SERVED if each.plural == DOMAINS.plural)
    remember(world, **{"ComputeDomain.resource.nvidia.com": ""})
    world.remove_kind(domains)
    process = Process(world)
    world.settle(process)
    assert watched(process) == set()
    world.api.kinds.append(domains)
    assert world.api.served is not None
    world.api.served.add((domains.api_version, domains.plural))
    world.settle(process)
    assert watched(process) == {"computedomains"}


def test_a_watch_of_a_kind_that_went_ends_and_its_objects_are_forgotten(world: World) -> None:
    uid = world.group()
    process = Process(world)
    world.settle(process)
    members = process.controller._inventory
    assert len(members.members(("team", "g"), uid)) == 5
    world.remove_kind(DOMAINS)
    world.settle(process)
    assert "computedomains" not in watched(process)
    assert len(members.members(("team", "g"), uid)) == 4


@pytest.mark.parametrize("key", ["configmap", "a.b", "A.b..", "X" * 64, "Config-Map", "A.../../b"])
def test_keys_that_name_no_kind_are_left_alone(key: str, world: World) -> None:
    remember(world, **{key: "", "Service": ""})
    process = Process(world)
    world.settle(process)
    assert watched(process) == {"services"}
    assert remembered(world) == {key, "Service"}


def test_the_number_of_kinds_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "MAX_KINDS", 3)
    world.group()
    process = Process(world)
    world.settle(process)
    assert len(remembered(world)) == 3
    assert world.condition("ObjectsCreated")[1] == "Retrying"
    assert "remembers 3 kinds" in world.condition("ObjectsCreated")[2]
    world.delete()
    world.settle(process)
    assert (world.groups(), world.objects()) == ([], [])


def test_a_configmap_with_too_many_kinds_gets_a_bounded_number_of_watches(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds, "MAX_KINDS", 2)
    remember(world, ConfigMap="", Secret="", Service="")
    process = Process(world)
    world.settle(process)
    assert len(watched(process)) == 2


def test_no_object_is_created_while_its_kind_cannot_be_remembered(world: World) -> None:
    world.api.fault = lambda verb, plural: (
        ApiError(403, "Forbidden", "no patch of configmaps") if (verb, plural) == ("merge", "configmaps") else None
    )
    world.group()
    process = Process(world, renderer=FakeRenderer())
    world.settle(process)
    assert (world.phase(), world.objects()) == ("Pending", [])
    assert "no patch of configmaps" in world.condition("ObjectsCreated")[2]
