"""The schema of a kind from its struct: what the API server checks, fills in and explains.

msgspec derives types, bounds and patterns. This module inlines the definitions, as structural schemas want it
(apiextensions.k8s.io/v1), takes descriptions from the source (gkm.api.field_docs), and gives each field of `spec` the
default that the code has: what a person leaves out is then seen in the stored object. An empty default is left out, and
so is every default of `status`: there it would look like something that the owner of the status has observed.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import NODEFAULT, Struct, inspect

from gkm.api import field_docs

Schema = dict[str, Any]

_DROPPED = frozenset({"title"})
_OWN = ("description", "default")
"""What a field says of itself, whatever its type says."""
_OF_EVERY_OBJECT = {
    # In the words of k8s.io/apimachinery (metav1.TypeMeta), which every CustomResourceDefinition repeats.
    "apiVersion": {
        "type": "string",
        "description": "APIVersion defines the versioned schema of this representation of an object.",
    },
    "kind": {
        "type": "string",
        "description": "Kind is a string value representing the REST resource this object represents.",
    },
    # The API server describes it itself, and refuses whoever does (apiextensions.k8s.io, validation.go).
    "metadata": {"type": "object"},
}


def of_kind(kind: type[Struct], rules: Iterable[Mapping[str, str]] = ()) -> Schema:
    """Return the schema of a kind with metadata, spec and status; `rules` are CEL rules over the whole object."""
    (_,), components = msgspec.json.schema_components((kind,), ref_template="{name}")
    for name, found in _structs(inspect.type_info(kind)).items():
        _complete(components[name]["properties"], found)
    schema: Schema = _inlined(components[kind.__name__], components)
    properties = schema["properties"]
    properties |= _OF_EVERY_OBJECT
    if "status" in properties:
        properties["status"] = _without_defaults(properties["status"])
    schema["required"] = ["spec"]
    if validations := [dict(rule) for rule in rules]:
        schema["x-kubernetes-validations"] = validations
    return schema


def _structs(info: inspect.Type) -> dict[str, inspect.StructType]:
    """Return the structs in a type by name."""
    found: dict[str, inspect.StructType] = {}
    left = [info]
    while left:
        one = left.pop()
        if isinstance(one, inspect.StructType):
            if one.cls.__name__ in found:
                continue
            found[one.cls.__name__] = one
        left += _inside(one)
    return found


def _inside(info: inspect.Type) -> Iterator[inspect.Type]:
    match info:
        case inspect.StructType():
            yield from (one.type for one in info.fields)
        case inspect.Metadata():
            yield info.type
        case inspect.ListType():
            yield info.item_type
        case inspect.DictType():
            yield info.value_type
        case inspect.UnionType():
            yield from info.types


def _complete(properties: dict[str, Schema], found: inspect.StructType) -> None:
    """Give each field its own description, and the default of the code where that says something."""
    descriptions = field_docs.of(found.cls)
    for one in found.fields:
        schema = properties[one.encode_name]
        schema.pop("default", None)
        if one.name in descriptions:
            schema["description"] = descriptions[one.name]
        default = _default(one)
        if default not in (None, ""):
            schema["default"] = default


def _default(field: inspect.Field) -> object:
    """Return what a schema says for a field that is left out, None for nothing.

    A struct that is left out becomes an empty one: its own fields have their defaults.
    """
    value = field.default if field.default is not NODEFAULT else None
    if field.default_factory is not NODEFAULT:
        value = field.default_factory()
    if isinstance(value, Struct):
        info = inspect.type_info(type(value))
        assert isinstance(info, inspect.StructType)  # noqa: S101 -- a Struct is one
        return {} if any(_default(one) not in (None, "") for one in info.fields) else None
    return value if isinstance(value, bool | int | float | str) else None


def _without_defaults(node: Any) -> Any:  # noqa: ANN401 -- JSON is what it is
    if isinstance(node, list):
        return [_without_defaults(item) for item in node]
    if isinstance(node, dict):
        return {key: _without_defaults(value) for key, value in node.items() if key != "default"}
    return node


def _inlined(node: Any, components: dict[str, Schema]) -> Any:  # noqa: ANN401 -- JSON is what it is
    if isinstance(node, list):
        return [_inlined(item, components) for item in node]
    if not isinstance(node, dict):
        return node
    own = {key: node[key] for key in _OWN if key in node}
    if "$ref" in node:
        return _inlined(components[node["$ref"]], components) | own
    if "anyOf" in node:
        # Only `X | None` is used in the API; an absent field and a null one are the same there.
        (present,) = (item for item in node["anyOf"] if item != {"type": "null"})
        return _inlined({key: value for key, value in node.items() if key != "anyOf"} | present, components) | own
    if set(node) >= {"enum"} and "type" not in node:
        node = node | {"type": "string"}
    return {
        key: {name: _inlined(schema, components) for name, schema in value.items()}
        if key == "properties"
        else _inlined(value, components)
        for key, value in node.items()
        if key not in _DROPPED and not (key == "required" and not value)
    }
