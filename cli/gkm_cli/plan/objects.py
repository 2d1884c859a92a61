"""The objects in a file of a few: one or several YAML documents, JSON, or a list as kubectl prints it. Pure."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from gkm.api import documents
from gkm.api.meta import API_VERSION

MAX_OBJECTS = 1_024
MAX_VALUES = 2_000_000
"""Scalars, lists and mappings together: a YAML alias counts each time that it is used, so that none is a bomb."""
MAX_DEPTH = 64

# YAML 1.2, section 9.1.2: no line within a document begins so, block scalars included.
_MARKER = re.compile(rb"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)


class ObjectsUnreadable(ValueError):
    """The text holds no such objects; the message says where."""


class ParsedObject(NamedTuple):
    """An object, and where it stands in its file: `document 2`, `items[7]`; empty for the only one."""

    where: str
    value: dict[str, Any]

    def describe(self, path: str) -> str:
        """Return path and place for a sentence."""
        return f"{path}, {self.where}" if self.where else path


def objects(text: bytes, kind: str) -> tuple[ParsedObject, ...]:
    """Return the objects of a kind in a text; the items of lists stand for themselves.

    Raises:
        ObjectsUnreadable: it is neither YAML nor JSON, has none or too many of them, or one of another kind or version.
    """
    found: list[ParsedObject] = []
    for where, value in _documents(text):
        for object_ in _listed(where, value, kind):
            _check(object_, kind)
            found.append(object_)
            if len(found) > MAX_OBJECTS:
                raise ObjectsUnreadable(f"it has more than the {MAX_OBJECTS} objects that are read")
    if not found:
        raise ObjectsUnreadable(f"it holds no {kind}")
    return tuple(found)


def single_mapping(text: bytes) -> dict[str, Any] | None:
    """Return what is one mapping without a kind, as an answer of ours is; None where it is something else.

    Raises:
        ObjectsUnreadable: it is neither YAML nor JSON.
    """
    found = list(_documents(text))
    if len(found) == 1 and isinstance(found[0][1], dict) and "kind" not in found[0][1]:
        return found[0][1]
    return None


def _documents(text: bytes) -> Iterator[tuple[str, object]]:
    if text.lstrip()[:1] == b"{":
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # YAML in flow style begins so, too, and says better what is wrong.
        else:
            _bounded(value)
            yield "", value
            return
    texts = [part for part in _MARKER.split(text) if part.strip()]
    for number, part in enumerate(texts, 1):
        where = f"document {number}" if len(texts) > 1 else ""
        try:
            value = documents.decode(part, object, MAX_VALUES, aliases=True)
        except documents.InvalidYAML as error:
            at = f"{where} is" if where else "it is"
            raise ObjectsUnreadable(f"{at} neither YAML nor JSON: {_short(error)}") from error
        _bounded(value)
        if value is not None:
            yield where, value


def _listed(where: str, value: object, kind: str) -> Iterator[ParsedObject]:
    if not isinstance(value, dict):
        raise ObjectsUnreadable(f"{where or 'it'} is no object with a kind")
    if value.get("kind") not in ("List", f"{kind}List"):
        yield ParsedObject(where, value)
        return
    items = value.get("items") or []
    if not isinstance(items, list):
        raise ObjectsUnreadable(f"{where or 'it'} is a list whose items are none")
    for number, item in enumerate(items):
        at = f"items[{number}]"
        if not isinstance(item, dict):
            raise ObjectsUnreadable(f"{at} is no object")
        yield ParsedObject(f"{where}, {at}" if where else at, item)


def _check(found: ParsedObject, kind: str) -> None:
    said, version = found.value.get("kind"), found.value.get("apiVersion")
    where = found.where or "it"
    if said != kind:
        raise ObjectsUnreadable(f"{where} is {_what(said)}, no {kind}")
    if version != API_VERSION:
        raise ObjectsUnreadable(f"{where} has apiVersion {_short(version)}, not {API_VERSION}")


def _what(kind: object) -> str:
    return f"a {_short(kind)}" if isinstance(kind, str) and kind else "something without a kind"


def _bounded(value: object) -> None:
    """Refuse what is larger or deeper than any object of ours, before anything walks it."""
    pending: list[tuple[object, int]] = [(value, 0)]
    seen = 0
    while pending:
        current, depth = pending.pop()
        inside = (
            [*current.keys(), *current.values()]
            if isinstance(current, dict)
            else current
            if isinstance(current, list)
            else []
        )
        seen += 1 + len(inside)
        if seen > MAX_VALUES or depth > MAX_DEPTH:
            raise ObjectsUnreadable("it is larger or deeper than any such file")
        pending += [(entry, depth + 1) for entry in inside if isinstance(entry, dict | list)]


def _short(said: object) -> str:
    return ascii(" ".join(str(said).split())[:160])[1:-1]
