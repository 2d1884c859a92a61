"""The objects in a small file: one or several YAML documents, JSON, or a list as kubectl prints it. Pure."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from gkm.api import documents
from gkm.api.meta import API_VERSION

MAX_OBJECTS = 1_024
MAX_VALUES = 2_000_000
"""Scalars, lists and mappings together. A YAML alias counts each time that it is used, which stops alias bombs."""
MAX_REPETITION = 4
"""Characters of all values, as a multiple of the text's length: an alias repeats a long string in a few bytes."""
MAX_DEPTH = 64

# YAML 1.2, section 9.1.2: no line within a document begins like this, not even in a block scalar.
_MARKER = re.compile(rb"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)


class ObjectsUnreadable(ValueError):
    """A file's text does not hold the expected objects; the message names the position."""


class ParsedObject(NamedTuple):
    """An object and its position in its file: `document 2`, `items[7]`; empty for a single object."""

    where: str
    value: dict[str, Any]

    def describe(self, path: str) -> str:
        """Return the file's path and the object's position for a message."""
        return f"{path}, {self.where}" if self.where else path


def objects(text: bytes, kind: str, *, max_values: int = MAX_VALUES, mixed: bool = False) -> tuple[ParsedObject, ...]:
    """Return the objects of a kind in a text, with the items of its lists; `mixed` ignores objects of other kinds.

    Raises:
        ObjectsUnreadable: the text is not YAML or JSON, holds no object, too many, or an object of another kind or
        version.
    """
    found: list[ParsedObject] = []
    for where, value in _documents(text, max_values):
        for object_ in _listed(where, value, kind):
            if mixed and object_.value.get("kind") not in (kind, None):
                continue
            _check(object_, kind)
            found.append(object_)
            if len(found) > MAX_OBJECTS:
                raise ObjectsUnreadable(f"it has more than {MAX_OBJECTS} objects")
    if not found:
        raise ObjectsUnreadable(f"it holds no {kind}")
    return tuple(found)


def single_mapping(text: bytes, max_values: int = MAX_VALUES) -> dict[str, Any] | None:
    """Return a single mapping without a kind, such as the JSON of `gkm plan`; None for any other text.

    Raises:
        ObjectsUnreadable: the text is not YAML or JSON.
    """
    found = list(_documents(text, max_values))
    if len(found) == 1 and isinstance(found[0][1], dict) and "kind" not in found[0][1]:
        return found[0][1]
    return None


def _documents(text: bytes, max_values: int) -> Iterator[tuple[str, object]]:
    if text.lstrip()[:1] == b"{":
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # YAML in flow style begins with a brace too, and its parser gives better errors.
        else:
            _check_bounds(value, max_values, len(text))
            yield "", value
            return
    texts = [part for part in _MARKER.split(text) if part.strip()]
    for number, part in enumerate(texts, 1):
        where = f"document {number}" if len(texts) > 1 else ""
        try:
            value = documents.decode(part, object, max_values, aliases=True)
        except documents.InvalidYAML as error:
            at = f"{where} is" if where else "it is"
            raise ObjectsUnreadable(f"{at} not YAML and not JSON: {_short(error)}") from error
        _check_bounds(value, max_values, MAX_REPETITION * len(text))
        if value is not None:
            yield where, _as_json(where, value)


def _listed(where: str, value: object, kind: str) -> Iterator[ParsedObject]:
    if not isinstance(value, dict):
        raise ObjectsUnreadable(f"{where or 'it'} is not an object with a kind")
    if value.get("kind") not in ("List", f"{kind}List"):
        yield ParsedObject(where, value)
        return
    items = value.get("items") or []
    if not isinstance(items, list):
        raise ObjectsUnreadable(f"{where or 'it'} is a list without a list of items")
    for number, item in enumerate(items):
        at = f"items[{number}]"
        if not isinstance(item, dict):
            raise ObjectsUnreadable(f"{at} is not an object")
        yield ParsedObject(f"{where}, {at}" if where else at, item)


def _check(found: ParsedObject, kind: str) -> None:
    actual, version = found.value.get("kind"), found.value.get("apiVersion")
    where = found.where or "it"
    if actual != kind:
        raise ObjectsUnreadable(f"{where} is {_with_article(actual)}, not a {kind}")
    if version != API_VERSION:
        raise ObjectsUnreadable(f"{where} has apiVersion {_short(version)}, not {API_VERSION}")


def _with_article(kind: object) -> str:
    return f"a {_short(kind)}" if isinstance(kind, str) and kind else "an object without a kind"


def _as_json(where: str, value: object) -> object:
    """Return a value with the types of JSON, as kubectl sends it: the key `1` is a string."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError) as error:
        raise ObjectsUnreadable(f"{where or 'it'} cannot be JSON: {_short(error)}") from error


def _check_bounds(value: object, max_values: int, max_characters: int) -> None:
    """Refuse a value that is larger or deeper than any object of GKM, before other code walks it."""
    pending: list[tuple[object, int]] = [(value, 0)]
    count = characters = 0
    while pending:
        current, depth = pending.pop()
        inside = (
            [*current.keys(), *current.values()]
            if isinstance(current, dict)
            else current
            if isinstance(current, list)
            else []
        )
        count += 1 + len(inside)
        characters += sum(len(entry) for entry in inside if isinstance(entry, str))
        if count > max_values or characters > max_characters or depth > MAX_DEPTH:
            raise ObjectsUnreadable("it is larger or deeper than any valid file")
        pending += [(entry, depth + 1) for entry in inside if isinstance(entry, dict | list)]


def _short(value: object) -> str:
    return ascii(" ".join(str(value).split())[:160])[1:-1]
