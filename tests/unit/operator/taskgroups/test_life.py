"""The life of a group, as its users see it: its objects, their order, and what of others it leaves alone."""

import pytest
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS
from support.operator.group_witness import (
    DEPLOYMENTS,
    FINALIZER,
    GROUPS,
    LABEL,
    NAMESPACE,
    RAW_POOLS,
    SECRETS,
    SERVICES,
    SYSTEM,
    UID_LABEL,
    an_object,
)
from support.operator.taskgroups import Process, World, refusing, settled


def test_a_group_has_its_objects_while_it_lives(world: World) -> None:
    uid = world.group()
    process = settled(world)
    assert world.phase() == "Running"
    assert world.condition("ObjectsCreated") == ("True", "Created", "5 objects created")
    assert world.objects() == [
        f"ComputeDomain domain-{uid}",
        "ConfigMap files-g",
        "Deployment proxy-g",
        "Secret certificates-g",
        "Service proxy-g",
    ]
    assert world.api.get(CONFIGMAPS, "files-g", NAMESPACE)["data"] == {"a": "w"}
    assert world.api.get(GROUPS, "g", NAMESPACE)["metadata"]["finalizers"] == [FINALIZER]
    world.end()
    world.settle(process)
    assert (world.phase(), world.objects()) == ("Succeeded", [])
    assert world.condition("ObjectsDeleted") == ("True", "Deleted", "5 objects are gone")
    world.delete()
    world.settle(process)
    assert world.groups() == []
    assert world.events() == []
    world.check()


def test_a_group_that_ends_deletes_its_objects(world: World) -> None:
    world.group()
    process = settled(world)
    world.end("Failed")
    process.run()
    assert (world.phase(), world.condition("ObjectsDeleted")[:2]) == ("Ending", ("False", "Deleting"))
    world.settle(process)
    assert world.phase() == "Failed"


def test_a_group_that_ends_before_it_began_has_no_objects(world: World) -> None:
    world.group()
    world.end("Canceled")
    settled(world)
    assert (world.phase(), world.condition("ObjectsCreated")[:2]) == ("Canceled", ("False", "Ended"))
    assert [call for call in world.api.calls if call[0] == "create" and call[1] == "configmaps"] == []


def test_objects_are_created_in_their_order_and_deleted_in_the_reverse_one(world: World) -> None:
    world.group()
    process = settled(world)
    made = [name for verb, plural, name in world.api.calls if verb == "create" and plural != "pools"]
    order = [each["name"] for each in world.status()["objects"]]
    assert [name for name in made if name in order] == order
    assert world.status()["objects"][-1]["kind"] == "Deployment"
    world.api.calls.clear()
    world.end()
    process.run()
    assert [name for verb, _, name in world.api.calls if verb == "delete"] == order[::-1]


def test_a_secret_is_created_and_its_content_is_in_no_status(world: World) -> None:
    world.group()
    settled(world)
    assert world.api.get(SECRETS, "certificates-g", NAMESPACE)["stringData"] == {"ca": "secret of g"}
    assert "secret of" not in str(world.status())
    assert sum("manifest" in each for each in world.status()["objects"]) == 4


def test_a_pool_without_templates_creates_nothing() -> None:
    world = World()
    world.api.merge(RAW_POOLS, "pool", {"spec": {"commonGroupTemplates": None}})
    world.group()
    process = settled(world)
    assert (world.phase(), world.status().get("objects")) == ("Running", None)
    world.delete()
    world.settle(process)
    assert world.groups() == []


def test_the_name_of_a_foreign_object_fails_the_group_and_the_object_stays(world: World) -> None:
    world.own(SERVICES, "proxy-g", spec={"selector": {"app": "mine"}})
    world.group()
    settled(world)
    assert (world.phase(), world.objects()) == ("Failed", [])
    status, reason, message = world.condition("ObjectsCreated")
    assert (status, reason) == ("False", "NameTaken")
    assert message.startswith("Service proxy-g exists, and this group did not create it")
    assert world.events() == [("Warning", "NameTaken")]


def test_an_object_of_another_group_is_foreign() -> None:
    world = World(an_object(CONFIGMAPS, "shared"))
    world.group("first")
    settled(world)
    world.group("second")
    process = settled(world)
    assert (world.phase("first"), world.phase("second")) == ("Running", "Failed")
    assert world.condition("ObjectsCreated", "second")[1] == "NameTaken"
    assert world.objects() == ["ConfigMap shared"]
    world.delete("second")
    world.settle(process)
    assert world.objects() == ["ConfigMap shared"]


def test_a_name_that_is_about_to_be_free_is_waited_for(world: World) -> None:
    world.own(SERVICES, "proxy-g")
    world.foreign.clear()
    world.api.merge(SERVICES, "proxy-g", {"metadata": {"finalizers": ["a.test/b"]}}, NAMESPACE)
    world.api.delete(SERVICES, "proxy-g", NAMESPACE)
    world.group()
    process = Process(world)
    world.settle(process)
    assert (world.phase(), world.condition("ObjectsCreated")[1]) == ("Pending", "Retrying")
    assert "another Service proxy-g is being deleted" in world.condition("ObjectsCreated")[2]
    world.api.merge(SERVICES, "proxy-g", {"metadata": {"finalizers": None}}, NAMESPACE)
    world.settle(process)
    assert world.phase() == "Running"
    world.check()


def test_an_object_that_lost_its_labels_before_the_group_runs_is_still_of_the_group(world: World) -> None:
    world.api.fault = refusing("create", "deployments", ApiError(500, "InternalError", "not now"))
    world.group()
    world.settle(Process(world))
    world.api.fault = lambda _verb, _plural: None
    assert world.phase() == "Pending"
    world.api.merge(CONFIGMAPS, "files-g", {"metadata": {"labels": None}}, NAMESPACE)
    process = settled(world)
    assert world.phase() == "Running"
    world.end()
    world.settle(process)
    assert world.phase() == "Succeeded"
    assert ("configmaps", NAMESPACE, "files-g") not in world.api._objects
    world.check()


def test_an_object_of_another_that_got_the_labels_of_a_group_is_not_deleted(world: World) -> None:
    """Who may change an object but not delete it could have a group delete it."""
    labels = {LABEL: "g", UID_LABEL: world.group()}
    world.own(SERVICES, "proxy-g", metadata={"name": "proxy-g", "labels": labels})
    settled(world)
    assert (world.phase(), world.condition("ObjectsCreated")[1]) == ("Failed", "NameTaken")


def test_a_planned_object_that_lost_its_labels_is_deleted_with_the_group(world: World) -> None:
    world.api.fault = refusing("create", "deployments", ApiError(500, "InternalError", "not now"))
    world.group()
    world.settle(Process(world))
    world.api.merge(CONFIGMAPS, "files-g", {"metadata": {"labels": None}}, NAMESPACE)
    world.end("Canceled")
    settled(world)
    assert world.phase() == "Canceled"
    assert ("configmaps", NAMESPACE, "files-g") not in world.api._objects


@pytest.mark.parametrize("labels", [{LABEL: "g"}, None])
def test_an_object_that_is_being_deleted_before_the_group_runs_is_created_again(
    labels: dict[str, str] | None, world: World
) -> None:
    """Also one that the watch does not show, because it has no labels."""
    world.api.fault = refusing("create", "deployments", ApiError(500, "InternalError", "not now"))
    world.group()
    world.settle(Process(world))
    world.api.fault = lambda _verb, _plural: None
    held: dict[str, object] = {"finalizers": ["a.test/b"]} | ({} if labels else {"labels": None})
    world.api.merge(CONFIGMAPS, "files-g", {"metadata": held}, NAMESPACE)
    world.api.delete(CONFIGMAPS, "files-g", NAMESPACE)
    process = settled(world)
    assert (world.phase(), world.condition("ObjectsCreated")) == (
        "Pending",
        ("False", "Retrying", "ConfigMap files-g is being deleted; it is created again once it is gone"),
    )
    before = world.api.get(CONFIGMAPS, "files-g", NAMESPACE)["metadata"]["uid"]
    world.api.merge(CONFIGMAPS, "files-g", {"metadata": {"finalizers": None}}, NAMESPACE)
    world.settle(process)
    found = world.api.get(CONFIGMAPS, "files-g", NAMESPACE)["metadata"]
    assert (world.phase(), "deletionTimestamp" in found) == ("Running", False)
    assert found["uid"] != before
    assert found["uid"] in {each["uid"] for each in world.status()["objects"]}
    world.check()


def test_an_object_that_another_client_replaced_is_not_deleted(world: World) -> None:
    world.group()
    process = settled(world)
    world.api.delete(DEPLOYMENTS, "proxy-g", NAMESPACE)
    world.own(DEPLOYMENTS, "proxy-g", spec={"replicas": 3})
    world.delete()
    world.settle(process)
    assert world.groups() == []
    world.check()


def test_a_planned_object_whose_creation_was_not_answered_is_found_and_deleted(world: World) -> None:
    world.api.fault = refusing("create", "deployments", ApiError(504, "Timeout", "not now"))
    world.group()
    world.settle(Process(world))
    world.api.fault = lambda _verb, _plural: None
    manifest = next(each["manifest"] for each in world.status()["objects"] if each["kind"] == "Deployment")
    world.api.create(DEPLOYMENTS, manifest)  # it arrived after all
    world.delete()
    settled(world)
    assert (world.groups(), world.objects()) == ([], [])


def test_a_status_written_by_somebody_else_moves_nothing_to_another_namespace(world: World) -> None:
    world.api.fault = refusing("create", "configmaps", ApiError(500, "InternalError", "not now"))
    uid = world.group()
    world.settle(Process(world))
    world.api.fault = lambda _verb, _plural: None
    status = world.status()
    (forged,) = [each for each in status["objects"] if each["kind"] == "ConfigMap"]
    forged["manifest"]["metadata"] = {"name": "elsewhere", "namespace": SYSTEM, "labels": {UID_LABEL: "another"}}
    body = {"metadata": {"name": "g", "namespace": NAMESPACE}, "status": status}
    world.api.apply(GROUPS, body, field_manager="somebody", subresource="status")
    settled(world)
    made = world.api.get(CONFIGMAPS, "files-g", NAMESPACE)
    assert [owner["uid"] for owner in made["metadata"]["ownerReferences"]] == [uid]
    assert made["metadata"]["labels"] == {UID_LABEL: uid, LABEL: "g"}
    assert ("configmaps", SYSTEM, "elsewhere") not in world.api._objects
