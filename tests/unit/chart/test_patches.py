"""Patches between two objects: what they hold, and that those of two components do not undo each other."""

from typing import Any

import pytest
from kustomizations.patches import patch_between

CONTAINER = {"name": "main", "image": "a", "args": ["run"]}


def of_pod(*containers: dict[str, Any], **more: object) -> dict[str, Any]:
    return {"spec": {"containers": list(containers), **more}}


def test_equal_objects_need_no_patch() -> None:
    assert not patch_between(of_pod(CONTAINER), of_pod(dict(CONTAINER)))


def test_a_list_with_names_is_merged_also_where_it_did_not_exist() -> None:
    patch = patch_between(of_pod(CONTAINER), of_pod(CONTAINER | {"env": [{"name": "A", "value": "on"}]}))
    assert patch.merge == of_pod({"name": "main", "env": [{"name": "A", "value": "on"}]})
    assert patch.operations == []


def test_a_list_without_names_is_appended_to() -> None:
    patch = patch_between(of_pod(CONTAINER), of_pod(CONTAINER | {"args": ["run", "--a", "--b"]}))
    assert patch.merge == {}
    where = "/spec/containers/0/args/-"
    assert patch.operations == [{"op": "add", "path": where, "value": value} for value in ("--a", "--b")]


@pytest.mark.parametrize("args", [[], ["other"], ["other", "run"]])
def test_a_list_that_loses_or_changes_an_element_is_replaced(args: list[str]) -> None:
    patch = patch_between(of_pod(CONTAINER), of_pod(CONTAINER | {"args": args}))
    assert patch.operations == [{"op": "replace", "path": "/spec/containers/0/args", "value": args}]


def test_a_list_with_names_that_loses_an_element_is_replaced() -> None:
    other = {"name": "other"}
    patch = patch_between(of_pod(CONTAINER, other), of_pod(other))
    assert (patch.merge, patch.operations) == (
        {},
        [{"op": "replace", "path": "/spec/containers", "value": [other]}],
    )


def test_fields_that_change_kind_or_go_are_replaced_or_null() -> None:
    old = of_pod(volumes=[{"name": "tls", "emptyDir": {}}], token=True, gone={"a": 1})
    new = of_pod(volumes=[{"name": "tls", "secret": {"secretName": "s"}}], token=False)
    patch = patch_between(old, new)
    volume = {"name": "tls", "emptyDir": None, "secret": {"secretName": "s"}}
    assert patch.merge == {"spec": {"volumes": [volume], "token": False, "gone": None}}
    assert patch.operations == []


def test_a_key_with_a_slash_is_escaped_in_the_path() -> None:
    patch = patch_between({"a/b~c": [1]}, {"a/b~c": [2]})
    assert patch.operations == [{"op": "replace", "path": "/a~1b~0c", "value": [2]}]
