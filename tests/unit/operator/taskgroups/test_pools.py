"""Pools show their merged templates, templates the number of their pools."""

from typing import Any

import pytest
from gkm.kube.resources import CONFIGMAPS
from support.operator.group_witness import DEPLOYMENTS, RAW_POOLS, RAW_TEMPLATES, an_object
from support.operator.taskgroups import Process, World

BASE = an_object(CONFIGMAPS, "a-{{WF_ID}}", data={"x": "1", "y": "2"})
PATCH = an_object(CONFIGMAPS, "a-{{ WF_ID }}", data={"y": None, "z": "{{ WF_POOL }}"})


@pytest.fixture
def world() -> World:
    return World(BASE, PATCH)


def pool(world: World, name: str = "pool") -> dict[str, Any]:
    found: dict[str, Any] = world.api.get(RAW_POOLS, name)["status"]
    return found


def condition(world: World, name: str = "pool") -> tuple[str, str, str]:
    (found,) = pool(world, name)["conditions"]
    assert found["type"] == "Parsed"
    return found["status"], found["reason"], found["message"]


def test_a_pool_shows_its_merged_templates_and_follows_their_changes(world: World) -> None:
    process = Process(world)
    world.settle(process)
    assert pool(world)["parsedGroupTemplates"] == [PATCH | {"data": {"x": "1", "z": "{{ WF_POOL }}"}}]
    assert condition(world) == ("True", "Parsed", "2 templates make 1 object")
    world.api.merge(RAW_TEMPLATES, "t1", {"spec": {"template": {"data": {"z": "3"}}}})
    world.settle(process)
    (parsed,) = pool(world)["parsedGroupTemplates"]
    assert parsed["data"]["z"] == "3"
    world.api.delete(RAW_TEMPLATES, "t1")
    world.settle(process)
    assert condition(world) == (
        "False",
        "TemplateMissing",
        "these GroupTemplates do not exist, or are being deleted: t1",
    )
    assert pool(world).get("parsedGroupTemplates") is None


def test_a_template_that_is_being_deleted_is_missing_until_there_is_a_new_one(world: World) -> None:
    process = Process(world)
    world.hold(RAW_TEMPLATES, "t1")
    world.settle(process)
    assert condition(world)[:2] == ("True", "Parsed")
    world.api.delete(RAW_TEMPLATES, "t1")
    world.settle(process)
    assert condition(world) == (
        "False",
        "TemplateMissing",
        "these GroupTemplates do not exist, or are being deleted: t1",
    )
    assert pool(world).get("parsedGroupTemplates") is None
    world.api.merge(RAW_TEMPLATES, "t1", {"metadata": {"finalizers": None}})
    world.template("t1", PATCH)
    world.settle(process)
    assert condition(world)[:2] == ("True", "Parsed")


def test_two_versions_of_one_object_are_a_condition(world: World) -> None:
    world.template("t2", BASE | {"apiVersion": "v2"})
    world.api.merge(RAW_POOLS, "pool", {"spec": {"commonGroupTemplates": ["t0", "t2"]}})
    world.settle(Process(world))
    status, reason, message = condition(world)
    assert (status, reason) == ("False", "TemplateInvalid")
    assert "t2" in message


def test_templates_that_are_too_large_together_are_a_condition(world: World) -> None:
    names = []
    for number in range(5):
        names.append(f"large-{number}")
        world.template(names[-1], an_object(CONFIGMAPS, f"c{number}", data={"x": "y" * (120 << 10)}))
    world.api.merge(RAW_POOLS, "pool", {"spec": {"commonGroupTemplates": names}})
    world.settle(Process(world))
    assert condition(world)[:2] == ("False", "TemplateInvalid")


def test_nothing_is_shared_between_pools(world: World) -> None:
    world.api.create(RAW_POOLS, an_object(RAW_POOLS, "other", spec={"commonGroupTemplates": ["t0"]}))
    world.settle(Process(world))
    assert pool(world, "other")["parsedGroupTemplates"] == [BASE]


def test_a_template_shows_how_many_pools_name_it(world: World) -> None:
    process = Process(world)
    world.api.create(RAW_POOLS, an_object(RAW_POOLS, "other", spec={"commonGroupTemplates": ["t0"]}))
    world.template("unused", an_object(DEPLOYMENTS, "d"))
    world.settle(process)
    found = {name: world.api.get(RAW_TEMPLATES, name).get("status", {}).get("pools", 0) for name in ("t0", "t1")}
    assert found == {"t0": 2, "t1": 1}
    world.api.delete(RAW_POOLS, "other")
    world.api.merge(RAW_POOLS, "pool", {"spec": {"commonGroupTemplates": ["unused"]}})
    world.settle(process)
    assert world.api.get(RAW_TEMPLATES, "t0")["status"].get("pools", 0) == 0
    assert world.api.get(RAW_TEMPLATES, "unused")["status"]["pools"] == 1


def test_what_is_written_is_written_once(world: World) -> None:
    world.settle(Process(world))
    before = len([call for call in world.api.calls if call[0] == "apply"])
    world.settle(Process(world))
    assert len([call for call in world.api.calls if call[0] == "apply"]) == before
