"""Objects as large as the API server takes them, one for each field that a user can fill. Made from the types."""

import re
import sys
from collections.abc import Iterator
from typing import Any

import gkm
from gkm.kube.resources import Resource
from gkm_operator.pods import ReadSpec, WatchedPod
from msgspec import inspect

Json = Any
ANNOTATION_BYTES = 256 << 10
"""The API server's limit of all annotations of an object (apimachinery, TotalAnnotationSizeLimitB)."""
FIELD_BYTES = 32 << 10
"""Of each other field: the API server bounds none but by the size of the object, 1.5 MB."""
NAME, NAMESPACE = "n" * 253, "s" * 63
_UID = "00000000-0000-4000-8000-%012d"
_KEY = re.compile(r"[a-z0-9.-]+\.(io|com|ai)/[A-Za-z0-9._-]+")
_SAMPLES = {
    "^sha256:[0-9a-f]{64}$": "sha256:" + "a" * 64,
    "^[0-9a-f]{64}$": "a" * 64,
    "^([0-9]+h)?([0-9]+m)?([0-9]+s)?$": "15m",
}
_READ_LATER: dict[type[Any], dict[str, type[Any]]] = {WatchedPod: {"spec": ReadSpec}}
"""Fields that a type decodes by itself, and the type that it then uses."""
_MAX_DEPTH = 12


def grown_objects(resource: Resource[Any], number: int) -> Iterator[tuple[str, Json]]:
    """Yield (name of the field, object) for each field of a kind that a user can fill."""
    plain = _plain(resource, number)
    for field, value in _grown_metadata().items():
        yield f"metadata.{field}", {**plain, "metadata": {**plain["metadata"], field: value}}
    everything = {**plain, "metadata": {**plain["metadata"], **_grown_metadata()}}
    yield "metadata", everything
    for name, kind in _parts(resource):
        for path, value in _grown(kind):
            yield f"{name}{path}", {**plain, name: value}


def _plain(resource: Resource[Any], number: int) -> Json:
    # Distinct, so that no two objects of a test share a text.
    name, namespace, uid = (f"{number}{text}"[:size] for text, size in ((NAME, 253), (NAMESPACE, 63), (_UID, 99)))
    metadata = {"name": name, "uid": uid % number, "resourceVersion": f"{10**8 + number}", "generation": number}
    metadata |= {"namespace": namespace} if resource.namespaced else {}
    times = {"creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    plain = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {**metadata, **times}}
    return plain | {name: _least(kind) for name, kind in _parts(resource)}


def _grown_metadata() -> dict[str, Json]:
    keys = known_keys()
    share = ANNOTATION_BYTES // len(keys) - 128
    texts = {"apiVersion": "gkm.io/v1alpha1", "kind": "TaskGroup"}
    owners = [{**texts, "name": f"owner-{each}", "uid": _UID % each} for each in range(FIELD_BYTES // 120)]
    fields: dict[str, Json] = {f"f:{each}": {} for each in range(FIELD_BYTES // 16)}
    return {
        "annotations": {key: f"{each}" + "a" * share for each, key in enumerate(keys)},
        # The API server bounds a label's value, and not the number of labels.
        "labels": dict.fromkeys(keys, "v" * 63) | {f"key-{each}": "v" * 63 for each in range(FIELD_BYTES // 80)},
        "ownerReferences": [
            {**texts, "name": "a-controller", "uid": "u" * FIELD_BYTES, "controller": True},
            *owners,
        ],
        "finalizers": [f"example.test/finalizer-{each}" for each in range(FIELD_BYTES // 32)],
        "managedFields": [{"manager": "m", "operation": "Update", "fieldsV1": fields}],
        "generateName": "g" * FIELD_BYTES,
    }


def known_keys() -> tuple[str, ...]:
    """Return the keys of labels and annotations that our sources name."""
    assert gkm
    found = set[str]()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in {"gkm", "gkm_agent", "gkm_operator", "gkm_cli", "gkm_csi"}:
            found.update(text for text in vars(module).values() if isinstance(text, str) and _KEY.fullmatch(text))
    return tuple(sorted(found))


def _parts(resource: Resource[Any]) -> Iterator[tuple[str, inspect.Type]]:
    """Yield the parts of an object that users write, with their types: neither metadata nor status."""
    later: dict[str, type[Any]] = next((parts for kind, parts in _READ_LATER.items() if resource.type is kind), {})
    if resource.metadata_only or not hasattr(resource.type, "__struct_fields__"):
        return
    found = inspect.type_info(resource.type)
    assert isinstance(found, inspect.StructType)
    for field in found.fields:
        if field.encode_name in {"spec", "data"}:
            kind = later.get(field.encode_name)
            yield field.encode_name, inspect.type_info(kind) if kind else field.type


def _grown(kind: inspect.Type, path: str = "", depth: int = 0) -> Iterator[tuple[str, Json]]:
    """Yield (path, value) for each field beneath a type that can grow, alone; and for those of items, in one item."""
    kind = _certain(kind)
    if depth > _MAX_DEPTH:
        return
    if isinstance(kind, inspect.StructType):
        least = _least(kind)
        for field in kind.fields:
            for inner, value in _grown(field.type, f"{path}.{field.encode_name}", depth + 1):
                yield inner, {**least, field.encode_name: value}
        return
    full = _full(kind, FIELD_BYTES)
    if full is not None:
        yield path, full
    if (item := getattr(kind, "item_type", None)) is not None:
        for inner, value in _grown(item, f"{path}[]", depth + 1):
            yield inner, [value]


def _full(kind: inspect.Type, size: int) -> Json | None:
    """Return the largest value of a type, of some bytes at most; None for a type that cannot grow."""
    kind = _certain(kind)
    if isinstance(kind, inspect.StrType) and kind.pattern not in _SAMPLES:
        return "a" * min(size, kind.max_length or size)
    if isinstance(kind, inspect.RawType | inspect.AnyType):
        return {"key": "a" * size}
    if isinstance(kind, inspect.DictType):
        value = _filled(kind.value_type, size)
        count = min(kind.max_length or size, max(1, size // (_length(value) + 317)))
        return {f"{each:07}" + "k" * 310: value for each in range(count)}
    if (item := getattr(kind, "item_type", None)) is not None:
        value = _filled(item, size)
        count = min(getattr(kind, "max_length", None) or size, max(1, size // (_length(value) + 1)))
        return [_numbered(value, each) for each in range(count)]
    return None


def _filled(kind: inspect.Type, size: int) -> Json:
    """Return an item of a list: with all its texts, as long as they may be, and at most 253 characters."""
    kind = _certain(kind)
    if isinstance(kind, inspect.StructType):
        return {field.encode_name: _filled(field.type, size) for field in kind.fields if not _is_tag(kind, field)}
    full = _full(kind, min(size, 253)) if isinstance(kind, inspect.StrType) else None
    return _least(kind) if full is None else full


def _numbered(value: Json, number: int) -> Json:
    """Return an item that differs from all others, so that none shares a text with another."""
    if isinstance(value, dict):
        return {name: _numbered(part, number) for name, part in value.items()}
    distinct = isinstance(value, str) and set(value) == {"a"}
    return f"{number}{value}"[: len(value)] if distinct else value


def _least(kind: inspect.Type) -> Json:
    """Return a small valid value of a type."""
    kind = _certain(kind)
    if isinstance(kind, inspect.StructType):
        return {field.encode_name: _least(field.type) for field in kind.fields if field.required}
    if isinstance(kind, inspect.StrType):
        return _SAMPLES.get(kind.pattern or "", "a" * (kind.min_length or 0))
    if isinstance(kind, inspect.LiteralType):
        return kind.values[0]
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        return kind.ge or 0
    if isinstance(kind, inspect.BoolType):
        return False
    return [] if hasattr(kind, "item_type") else {}


def _certain(kind: inspect.Type) -> inspect.Type:
    """Return a type without its metadata, and of a union its first part that is not None."""
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        return _certain(next(part for part in kind.types if not isinstance(part, inspect.NoneType)))
    return kind


def _is_tag(kind: inspect.StructType, field: inspect.Field) -> bool:
    return kind.tag_field == field.encode_name


def _length(value: Json) -> int:
    return len(repr(value))
