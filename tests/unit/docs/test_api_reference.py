"""The page of the API has every field of every kind, and every field has a description."""

from pathlib import Path
from typing import Any

import api_reference
import pytest
from gkm.api.crds import definitions

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "api.md"
SCHEMAS = {
    value["spec"]["names"]["kind"]: value["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for value in definitions().values()
}


@pytest.mark.parametrize("kind", SCHEMAS)
def test_every_field_of_a_kind_has_a_description(kind: str) -> None:
    assert api_reference.undescribed(SCHEMAS[kind]) == []
    assert SCHEMAS[kind]["description"]


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"properties": {"a": {"type": "string"}}}, "a"),
        ({"properties": {"a": {"type": "string", "description": " "}}}, "a"),
        ({"properties": {"a": {"description": "A.", "items": {"properties": {"b": {}}}}}}, "a[].b"),
        ({"properties": {"a": {"description": "A.", "additionalProperties": {"properties": {"b": {}}}}}}, "a.*.b"),
        ({"properties": {"spec": {"description": "S.", "properties": {"metadata": {}}}}}, "spec.metadata"),
    ],
)
def test_a_field_without_a_description_is_found(schema: dict[str, Any], path: str) -> None:
    assert api_reference.undescribed(schema) == [path]


def test_the_page_is_that_of_the_schemas() -> None:
    assert PAGE.read_text(encoding="utf-8") == api_reference.page()


@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_page_has_every_field_once(kind: str) -> None:
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {kind}\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1].strip().strip("*`") for line in section.splitlines() if line.startswith("| ")][1:]
    wanted = [field.path for field in api_reference.fields(SCHEMAS[kind])]
    assert rows == [path for path in wanted if path not in ("apiVersion", "kind")]
