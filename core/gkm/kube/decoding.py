"""Lists and watch events as bytes become typed entries; an object that cannot be read stops no other.

Nor is it taken for deleted: its key is handed on instead of it.
"""

import logging
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from gkm.hoststate.logs import fields
from gkm.kube.api import Change, Key, ListPage, Object, ObjectEntry, WatchEvent
from gkm.kube.errors import NO_RESPONSE, UNDECODABLE, UNREADABLE, ApiError, from_body
from gkm.kube.resources import Resource

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_GONE = 410


_Version = Annotated[str, msgspec.Meta(min_length=1)]
"""Of an object, a list or a bookmark. Without one there is nothing to go on from: "" means the start of everything."""


class _Meta(Struct, rename="camel"):
    resource_version: _Version
    continue_: str = field(default="", name="continue")


class _Named(Struct, rename="camel"):
    name: str
    resource_version: _Version
    namespace: str = ""


class _Head(Struct):
    metadata: _Named


class _Bookmark(Struct):
    metadata: _Meta


class _List(Struct):
    metadata: _Meta
    items: list[Raw] | None = None


class _Event(Struct):
    type: str
    object: Raw


def page(resource: Resource[T], body: bytes) -> tuple[ListPage[T], str]:
    """Return a page and the continue token of its list.

    Raises:
        ApiError: it is no list.
    """
    try:
        listed = msgspec.json.decode(body, type=_List)
        heads = [(msgspec.json.decode(raw, type=_Head).metadata, raw) for raw in listed.items or ()]
    except UNDECODABLE as error:
        raise unreadable(resource, error) from error
    entries, unread = [], []
    for head, raw in heads:
        entry = _entry(resource, head, raw)
        if entry is None:
            unread.append((head.namespace, head.name))
        else:
            entries.append(entry)
    return ListPage(tuple(entries), listed.metadata.resource_version, tuple(unread)), listed.metadata.continue_


def event(resource: Resource[T], line: bytes) -> WatchEvent[T]:
    """Return the event in a line of a watch.

    Raises:
        ApiError: the line is an error, or no event.
    """
    try:
        decoded = msgspec.json.decode(line, type=_Event)
        if decoded.type == "ERROR":
            raise from_body(_GONE, bytes(decoded.object))
        change = Change(decoded.type)
        if change is Change.BOOKMARK:
            version = msgspec.json.decode(decoded.object, type=_Bookmark).metadata.resource_version
            return WatchEvent(change, version)
        head = msgspec.json.decode(decoded.object, type=_Head).metadata
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors, as is an unknown type of event
        raise unreadable(resource, error) from error
    entry = _entry(resource, head, decoded.object)
    key: Key | None = (head.namespace, head.name) if entry is None else None
    return WatchEvent(change, head.resource_version, entry, key)


def single_object(resource: Resource[T], body: bytes) -> T:
    """Return an object.

    Raises:
        ApiError: it cannot be read as the type that was asked for.
    """
    try:
        return msgspec.json.decode(body, type=resource.type)
    except UNDECODABLE as error:
        raise unreadable(resource, error) from error


def unreadable(resource: Resource[Any], error: Exception) -> ApiError:
    """Return the error for an answer that is not what the API promises; its status is 0: retry, slowly."""
    return ApiError(NO_RESPONSE, UNREADABLE, f"the server's {resource.kind} cannot be read: {str(error)[:200]}")


def plain(value: Object) -> Mapping[str, Any]:
    """Return what is written as JSON values."""
    if isinstance(value, Mapping):
        return value
    builtins: Mapping[str, Any] = msgspec.to_builtins(value)
    return builtins


def _entry(resource: Resource[T], head: _Named, raw: Raw) -> ObjectEntry[T] | None:
    try:
        value = msgspec.json.decode(raw, type=resource.type)
    except UNDECODABLE as error:
        # Stored before a schema became stricter, or by a newer version. One such object must not stop all the others.
        name = f"{head.namespace}/{head.name}" if head.namespace else head.name
        _LOG.warning("object cannot be read", extra=fields(object=f"{resource.kind} {name}", why=str(error)))
        return None
    return ObjectEntry(head.namespace, head.name, head.resource_version, value)
