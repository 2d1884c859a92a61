"""What is known of an object: an absent one is not gone unless it was seen to go."""

import pytest
from gkm.api.meta import OwnerReference
from gkm.kube.discovery import KindName
from gkm_operator.taskgroups.members import GroupInventory, GroupMember, Living, MemberMetadata, Seen, Sight

KIND, GROUP = KindName("", "ConfigMap"), ("team", "g")


def member(
    uid: str = "o",
    *,
    name: str = "c",
    group_uid: str = "u",
    owner: str = "",
    owner_name: str = "g",
    deleted: bool = False,
    kind: KindName = KIND,
) -> GroupMember:
    metadata = MemberMetadata(
        name,
        "team",
        uid,
        deletion_timestamp="2026-03-01T12:00:00Z" if deleted else None,
        labels={"gkm.io/task-group": "g", "gkm.io/task-group-uid": group_uid},
        finalizers=("f",),
        owner_references=(OwnerReference("gkm.io/v1alpha1", "TaskGroup", owner_name, owner or group_uid),),
    )
    return GroupMember(kind, metadata)


def sight(inventory: GroupInventory, uid: str = "o", name: str = "c") -> Seen:
    return inventory.sight(GROUP, "u", KIND, name, uid)


def test_an_object_is_unseen_living_terminating_and_gone() -> None:
    inventory = GroupInventory()
    assert sight(inventory) is Sight.UNSEEN
    inventory.change(None, member())
    assert sight(inventory) == Living("o", terminating=False, finalizers=("f",))
    assert sight(inventory, uid="") == Living("o", terminating=False, finalizers=("f",))
    inventory.change(member(), member(deleted=True))
    assert sight(inventory) == Living("o", terminating=True, finalizers=("f",))
    inventory.change(member(deleted=True), None)
    assert sight(inventory) is Sight.GONE
    assert sight(inventory, uid="") is Sight.UNSEEN


def test_an_object_that_lost_its_label_is_not_gone() -> None:
    inventory = GroupInventory()
    inventory.change(None, member())
    inventory.change(member(), None)
    assert sight(inventory) is Sight.UNSEEN


def test_an_object_of_another_uid_name_kind_or_group_is_another_one() -> None:
    inventory = GroupInventory()
    others = member("x"), member("y", name="d", group_uid="v"), member("z", kind=KindName("apps", "ConfigMap"))
    for other in others:
        inventory.change(None, other)
    assert sight(inventory) is Sight.UNSEEN
    assert sight(inventory, uid="", name="d") is Sight.UNSEEN
    assert sight(inventory, uid="y") is Sight.UNSEEN
    assert [each.metadata.uid for each in inventory.members(GROUP, "v")] == ["y"]
    assert sight(inventory, uid="y", name="d") is Sight.UNSEEN
    assert [each.metadata.uid for each in inventory.others(GROUP, "u")] == ["y"]


def test_an_object_without_the_reference_is_known_by_its_uid_only() -> None:
    inventory = GroupInventory()
    inventory.change(None, member(owner="another"))
    assert sight(inventory) == Living("o", terminating=False, finalizers=("f",))
    assert sight(inventory, uid="") is Sight.UNSEEN
    assert inventory.members(GROUP, "u") == []


def test_others_are_counted_and_listed() -> None:
    inventory = GroupInventory()
    assert not inventory.has_others(GROUP, "u")
    inventory.change(None, member())
    assert not inventory.has_others(GROUP, "u")
    assert inventory.has_others(GROUP, "v")
    assert inventory.has_others(GROUP, "")
    inventory.change(None, member("p", name="d", group_uid="v"))
    assert inventory.has_others(GROUP, "u")
    inventory.change(member("p", name="d", group_uid="v"), member("p", name="d", group_uid="v", deleted=True))
    assert inventory.others(GROUP, "u") == []
    inventory.change(member("p", name="d", group_uid="v", deleted=True), None)
    assert not inventory.has_others(GROUP, "u")


def test_the_reference_decides_which_group_an_object_is_of() -> None:
    inventory = GroupInventory()
    relabelled = member(owner_name="h")
    inventory.change(None, relabelled)
    assert inventory.members(("team", "h"), "u") == [relabelled]
    assert not inventory.has_others(GROUP, "")
    assert relabelled.group == ("team", "h")
    assert member(owner="another", owner_name="h").group == GROUP


def test_the_number_of_objects_that_are_remembered_as_gone_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gkm_operator.taskgroups.members._MAX_GONE", 3)
    inventory = GroupInventory()
    for number in range(5):
        inventory.change(member(f"{number}", deleted=True), None)
    assert [sight(inventory, f"{number}") for number in range(5)] == [Sight.UNSEEN] * 2 + [Sight.GONE] * 3
