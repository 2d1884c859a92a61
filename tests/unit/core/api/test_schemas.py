"""Descriptions (kubectl explain) and defaults in the schemas of all kinds."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from gkm.api.crds import KINDS, Kind, definition
from gkm.api.schemas import field_descriptions
from msgspec import NODEFAULT, Struct, inspect

Schema = dict[str, Any]
BY_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
EMPTY: tuple[object, ...] = (None, "", [], {})


def schema_of(kind: Kind) -> Schema:
    found: Schema = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def properties(node: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """Yield every property with its path, including those in lists and maps."""
    for name, inner in node.get("properties", {}).items():
        yield f"{path}.{name}", inner
        yield from properties(inner, f"{path}.{name}")
    for inside in ("items", "additionalProperties"):
        if isinstance(node.get(inside), dict):
            yield from properties(node[inside], f"{path}[]")


def of_code(info: inspect.Type, path: str) -> Iterator[tuple[str, object]]:
    """Yield every field of a type with its path and its default in the code, or None."""
    match info:
        case inspect.StructType():
            for one in info.fields:
                at = f"{path}.{one.encode_name}"
                value = None if one.default is NODEFAULT else one.default
                if one.default_factory is not NODEFAULT:
                    value = one.default_factory()
                yield at, value
                yield from of_code(one.type, at)
        case inspect.Metadata():
            yield from of_code(info.type, path)
        case inspect.ListType():
            yield from of_code(info.item_type, f"{path}[]")
        case inspect.DictType():
            yield from of_code(info.value_type, f"{path}[]")
        case inspect.UnionType():
            for one_type in info.types:
                yield from of_code(one_type, path)


@BY_KIND
def test_every_field_has_a_description(kind: Kind) -> None:
    found = [(path, schema) for path, schema in properties(schema_of(kind), "") if path != ".metadata"]
    assert len(found) > 10
    assert [path for path, schema in found if len(schema.get("description", "")) < len("Is so.")] == []


@BY_KIND
def test_a_spec_has_the_defaults_of_the_code_and_a_status_has_none(kind: Kind) -> None:
    code = {path: value for path, value in of_code(inspect.type_info(kind.type), "") if path.startswith(".spec")}
    schema = {path: inner.get("default") for path, inner in properties(schema_of(kind), "")}
    assert code.keys() == {path for path in schema if path.startswith(".spec")}
    for path, value in code.items():
        if isinstance(value, Struct):
            # The API server fills in an empty object, then its fields.
            below = [schema[inner] for inner in code if inner.startswith(f"{path}.")]
            assert schema[path] == ({} if any(default is not None for default in below) else None), path
            assert msgspec.convert({}, type(value)) == value
        else:
            assert schema[path] == (None if value in EMPTY else value), path
            assert type(schema[path]) is type(None if value in EMPTY else value), path
    assert not [path for path, default in schema.items() if default is not None and not path.startswith(".spec")]


def test_no_schema_refers_to_another() -> None:
    def keys(node: object) -> set[str]:
        if isinstance(node, dict):
            if node.get("x-kubernetes-int-or-string"):
                # The one form of anyOf that a structural schema may have beside it.
                assert node["anyOf"] == [{"type": "integer"}, {"type": "string"}]
                return set()
            return set(node) | {key for value in node.values() for key in keys(value)}
        return {key for item in node for key in keys(item)} if isinstance(node, list) else set()

    assert not keys([definition(kind) for kind in KINDS]) & {"$ref", "anyOf"}


class Documented(Struct):
    """A struct of this test."""

    first: int
    """One line."""
    second: int = 0
    """Two
    lines."""
    third: int = 0


def test_the_string_below_a_field_describes_it() -> None:
    assert field_descriptions(Documented) == {"first": "One line.", "second": "Two lines."}
