"""What an ownerReference proves: that an object is of the group with its uid."""

from collections.abc import Mapping

import msgspec
import pytest
from gkm_operator.taskgroups.members import MemberMetadata, owned_by

OURS = {"apiVersion": "gkm.io/v1alpha1", "kind": "TaskGroup", "name": "g", "uid": "u"}


def decoded(*owners: Mapping[str, object]) -> MemberMetadata:
    return msgspec.convert({"name": "o", "ownerReferences": owners}, MemberMetadata)


def test_a_reference_to_the_group_is_the_proof() -> None:
    another = OURS | {"uid": "v", "name": "h"}
    assert owned_by(decoded(another, OURS | {"apiVersion": "gkm.io/v1", "controller": False}), "u")
    assert not owned_by(decoded(another), "u")
    assert not owned_by(decoded(), "u")
    assert not owned_by(msgspec.convert({"name": "o", "labels": {"gkm.io/task-group-uid": "u"}}, MemberMetadata), "u")


@pytest.mark.parametrize("change", [{"kind": "Pool"}, {"apiVersion": "v1"}, {"apiVersion": "gkm.io.test/v1"}])
def test_a_reference_to_another_kind_is_none(change: dict[str, object]) -> None:
    assert not owned_by(decoded(OURS | change), "u")


def test_no_object_is_of_a_group_without_uid() -> None:
    assert not owned_by(decoded(OURS | {"uid": ""}), "")


@pytest.mark.parametrize("field", ["apiVersion", "name", "uid"])
def test_what_is_stored_of_references_is_bounded(field: str) -> None:
    pods = [{"apiVersion": "v1", "kind": "Pod", "name": f"p-{number}", "uid": f"{number}"} for number in range(1000)]
    stored = decoded(*pods, OURS | {field: f"gkm.io/{'x' * 10_000}"}, *[OURS] * 1000).owner_references or ()
    assert 0 < len(stored) <= 4
    assert all(len(owner.api_version + owner.name + owner.uid) < 100 for owner in stored)
