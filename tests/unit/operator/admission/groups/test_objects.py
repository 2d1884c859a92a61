"""GroupTemplates and TaskGroups as admission stores them: what is refused when they are decoded, and what stays."""

import json
from typing import Any

import msgspec
import pytest
from gkm_operator.admission.groups.objects import (
    MAX_TEXT,
    ObservedGroup,
    ReviewedTemplate,
)
from support.grove.tables import table
from support.operator.group_templates import DOMAIN, Json, config_map, planned, template


def decoded(value: Json, kind: type[Any]) -> Any:  # noqa: ANN401 -- any type
    return msgspec.json.decode(json.dumps(value), type=kind)


def test_a_template_is_decoded_anew_for_each_use() -> None:
    found = decoded(template(value=config_map(data={"a": "1"})), ReviewedTemplate).spec
    found.object["data"]["a"] = "2"
    assert found.object == config_map(data={"a": "1"})


@table(
    "value, said",
    [
        ("many values", [[]] * (MAX_TEXT // 8), "more than the"),
        ("a large text", "x" * MAX_TEXT, f"the limit is {MAX_TEXT}"),
    ],
)
def test_a_template_that_would_take_much_memory_is_refused(value: object, said: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=said):
        decoded(template(value=config_map(data=value)), ReviewedTemplate)


@pytest.mark.parametrize(("value", "kind"), [("text", "str"), (7, "int"), ([], "array"), (True, "bool")])
def test_a_template_is_an_object(value: object, kind: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=f"Expected `object`, got `{kind}`"):
        decoded({"metadata": {"name": "x"}, "spec": {"template": value}}, ReviewedTemplate)


def test_of_a_group_only_the_manifest_of_its_domain_stays() -> None:
    found = decoded(planned("train", config_map(data={"a": "x" * 100_000}), DOMAIN), ObservedGroup)
    assert found.claim_template == "osmo-{{ WF_GROUP_UUID }}"
    assert [bytes(each.manifest)[:10] for each in found.status.objects] == [b"null", b'{"apiVersi']


def test_a_manifest_that_would_take_much_memory_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="more than the"):
        decoded(planned("train", DOMAIN | {"spec": [[]] * 100_000}), ObservedGroup)


@table(
    "status, expected",
    [
        ("no status", {}, (False, False)),
        ("pending", {"phase": "Pending"}, (False, False)),
        ("planned", {"phase": "Pending", "objects": [{"kind": "X"}]}, (True, False)),
        ("running without objects", {"phase": "Running"}, (True, False)),
        ("ended", {"phase": "Ending", "objects": [{"kind": "X"}]}, (True, True)),
        ("ended without objects", {"phase": "Succeeded"}, (True, False)),
    ],
)
def test_what_a_status_means_for_pods(status: Json, expected: tuple[bool, bool]) -> None:
    found = decoded({"status": status}, ObservedGroup)
    assert (found.planned, found.ended) == expected
