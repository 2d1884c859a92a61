"""The OpenAPI schema of a kind, generated from its struct: validation, defaults and descriptions for the API server.

msgspec derives types, bounds and patterns. This module inlines the definitions, as structural schemas require
(apiextensions.k8s.io/v1), and takes descriptions from the source. Each field of `spec` gets the default of the code, so
that the stored object shows a value that a user omits. An empty default is omitted. So is every default of `status`,
which would look like an observation of the controller.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from inspect import getmodule, getsource
from itertools import pairwise
from types import ModuleType
from typing import Any

import msgspec
from msgspec import NODEFAULT, Struct, inspect

Schema = dict[str, Any]

_OWN = ("description", "default")
"""Keys that a field sets itself and that override the keys of its type."""
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
    # The API server defines metadata and refuses another definition (apiextensions.k8s.io, validation.go).
    "metadata": {"type": "object"},
}


def of_kind(kind: type[Struct], rules: Iterable[Mapping[str, str]]) -> Schema:
    """Return the OpenAPI schema of a kind of GKM's API; `rules` are CEL validation rules."""
    (_,), components = msgspec.json.schema_components((kind,), ref_template="{name}")
    for found in _structs(inspect.type_info(kind)):
        _complete(components[found.cls.__name__]["properties"], found)
    schema: Schema = _inlined(components[kind.__name__], components)
    properties = schema["properties"]
    properties |= _OF_EVERY_OBJECT
    properties["status"] = _without_defaults(properties["status"])
    schema["required"] = ["spec"]
    if validations := [dict(rule) for rule in rules]:
        schema["x-kubernetes-validations"] = validations
    return schema


def _structs(info: inspect.Type) -> Iterator[inspect.StructType]:
    """Yield the structs in a type, one as often as the type uses it."""
    match info:
        case inspect.StructType():
            yield info
            for each in info.fields:
                yield from _structs(each.type)
        case inspect.Metadata():
            yield from _structs(info.type)
        case inspect.ListType():
            yield from _structs(info.item_type)
        case inspect.DictType():
            yield from _structs(info.value_type)
        case inspect.UnionType():
            for each_type in info.types:
                yield from _structs(each_type)


def _complete(properties: dict[str, Schema], found: inspect.StructType) -> None:
    """Set the description of each field, and the default of the code unless it is empty."""
    descriptions = field_descriptions(found.cls)
    for each in found.fields:
        schema = properties[each.encode_name]
        schema.pop("default", None)
        if each.name in descriptions:
            schema["description"] = descriptions[each.name]
        default = _default(each)
        if default not in (None, ""):
            schema["default"] = default


def field_descriptions(kind: type[Struct]) -> Mapping[str, str]:
    """Return {field: description} of a struct, by the names of its attributes, from the string below each field.

    The interpreter discards these strings, so this reads the source. Empty without it (an interpreter with compiled
    files only): validation at run time needs no descriptions, and the shipped definitions are generated.
    """
    module = getmodule(kind)
    try:
        return {} if module is None else _module_descriptions(module).get(kind.__name__, {})
    except OSError:
        return {}


@cache
def _module_descriptions(module: ModuleType) -> Mapping[str, Mapping[str, str]]:
    """Return {class: {field: description}} of a module, each description as one line; raise OSError without source."""
    tree = ast.parse(getsource(module))
    return {node.name: dict(_documented(node)) for node in tree.body if isinstance(node, ast.ClassDef)}


def _documented(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for pair in pairwise(node.body):
        match pair:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, " ".join(text.split())


def _default(field: inspect.Field) -> object:
    """Return the default of a field for the schema; None for no default.

    The default of an omitted struct is an empty object, because its fields have their own defaults.
    """
    value = field.default if field.default is not NODEFAULT else None
    if field.default_factory is not NODEFAULT:
        value = field.default_factory()
    if isinstance(value, Struct):
        info = inspect.type_info(type(value))
        assert isinstance(info, inspect.StructType)  # noqa: S101 -- a Struct is one
        return {} if any(_default(each) not in (None, "") for each in info.fields) else None
    return value if isinstance(value, bool | int | float | str) else None


def _without_defaults(node: Any) -> Any:  # noqa: ANN401 -- any JSON value
    if isinstance(node, list):
        return [_without_defaults(item) for item in node]
    if isinstance(node, dict):
        return {key: _without_defaults(value) for key, value in node.items() if key != "default"}
    return node


def _inlined(node: Any, components: dict[str, Schema]) -> Any:  # noqa: ANN401 -- any JSON value
    if isinstance(node, list):
        return [_inlined(item, components) for item in node]
    if not isinstance(node, dict):
        return node
    own = {key: node[key] for key in _OWN if key in node}
    if "$ref" in node:
        return _inlined(components[node["$ref"]], components) | own
    if "anyOf" in node and not node.get("x-kubernetes-int-or-string"):
        # The API uses only `X | None`; an absent field equals a null field.
        (present,) = (item for item in node["anyOf"] if item != {"type": "null"})
        return _inlined({key: value for key, value in node.items() if key != "anyOf"} | present, components) | own
    if "enum" in node and "type" not in node:
        node = node | {"type": "string"}
    return {
        key: {name: _inlined(schema, components) for name, schema in value.items()}
        if key == "properties"
        else _inlined(value, components)
        for key, value in node.items()
        if key != "title" and not (key == "required" and not value)
    }
