"""Objects of GKM's kinds in files, checked as by the API server: misspelt fields, bounds, names and labels.

A field that the schema of the kind does not have must not be ignored.
"""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
from gkm.api import schemas
from gkm.api.meta import ObjectMeta
from gkm.api.runs import LABEL_KEY, LABEL_VALUE

from gkm_cli.inputs import files
from gkm_cli.inputs.objects import MAX_VALUES, ObjectsUnreadable, ParsedObject, objects
from gkm_cli.output import UsageError

MAX_NAMESPACE = 63
LABEL_HINT = "a key or value has up to 63 letters, digits, '-', '_' and '.'"
# The rule of gkm.api.runs.Labels, which only the API server can evaluate.
_KEY, _VALUE = re.compile(LABEL_KEY), re.compile(LABEL_VALUE)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
Schema = Mapping[str, Any]


class HasMetadata(Protocol):
    """An object of a kind of GKM."""

    @property
    def metadata(self) -> ObjectMeta:
        """Return the metadata of the object."""


T = TypeVar("T", bound=HasMetadata)


def found_in(
    path: Path, kind: str, max_bytes: int, *, max_values: int = MAX_VALUES, mixed: bool = False
) -> Iterator[ParsedObject]:
    """Yield the objects of a kind in a file, with file and position for messages; `mixed` ignores other kinds.

    Raises:
        OSError: the file cannot be read.
        UsageError: it does not hold such objects.
    """
    name = files.name(path)
    try:
        found = objects(files.read_all(path, max_bytes), kind, max_values=max_values, mixed=mixed)
    except ObjectsUnreadable as error:
        hint = f"give manifests of {kind}s (gkm.io/v1alpha1), or the output of `kubectl get {kind.lower()}s -o json`"
        raise UsageError(f"{name}: {error}", hint) from error
    for each in found:
        yield ParsedObject(each.describe(name), each.value)


def converted(found: ParsedObject, kind: type[T], max_name: int) -> T:
    """Return an object from a file as a typed value.

    Raises:
        UsageError: the API server would refuse it.
    """
    where, fields = found.where, schema_of(kind)
    if path := next(unknown_fields(found.value, fields), None):
        message = f"{where}: a {kind.__name__} has no field {ascii(path[:200])[1:-1]}"
        raise UsageError(message, suggestion(path, fields))
    try:
        value = msgspec.convert(found.value, type=kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise UsageError(f"{where}: {ascii(str(error)[:300])[1:-1]}", "correct it") from error
    name, namespace = value.metadata.name, value.metadata.namespace
    if not (_NAME.fullmatch(name) and len(name) <= max_name):
        raise UsageError(
            f"{where}: metadata.name {name[:80]!a} is not a valid name",
            f"use up to {max_name} lower case letters, digits, '-' and '.'",
        )
    if namespace and not (_NAME.fullmatch(namespace) and len(namespace) <= MAX_NAMESPACE):
        raise UsageError(f"{where}: metadata.namespace {namespace[:80]!a} is not a valid name", "correct it")
    return value


def invalid_labels(path: str, labels: Mapping[str, str]) -> Iterator[str]:
    """Yield a message for each invalid label of an object; `path` is the field with the labels."""
    for key, value in labels.items():
        if not (_KEY.fullmatch(key) and _VALUE.fullmatch(value)):
            yield f"{path}: {key[:80]!a}: {value!a} is not a valid label"


@cache
def schema_of(kind: type[Any]) -> Schema:
    """Return the OpenAPI schema in the CustomResourceDefinition of a kind, without its CEL rules."""
    return schemas.of_kind(kind, ())


def unknown_fields(value: object, schema: Schema, path: str = "") -> Iterator[str]:
    """Yield the paths of fields that a schema does not have, as the API server's strict validation does.

    If the schema names no fields, as for labels and metadata, it accepts any.
    """
    if isinstance(value, list):
        items = schema.get("items", {})
        for number, item in enumerate(value):
            yield from unknown_fields(item, items, f"{path}[{number}]")
    fields = schema.get("properties")
    if isinstance(value, dict) and fields is not None:
        for key, inner in value.items():
            at = f"{path}.{key}" if path else str(key)
            if key in fields:
                yield from unknown_fields(inner, fields[key], at)
            else:
                yield at


def suggestion(path: str, schema: Schema) -> str:
    """Return the field that an unknown field may stand for, or all fields."""
    *above, field = re.sub(r"\[[0-9]+\]", ".", path).split(".")
    here = schema
    for part in above:
        here = here.get("items", here) if not part else here.get("properties", {}).get(part, here)
    fields = sorted(here.get("properties", {}))
    close = get_close_matches(field, fields, n=1)
    return f"{close[0]} may be meant" if close else f"it has {', '.join(fields)}"
