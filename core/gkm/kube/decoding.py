"""Decode lists and watch events into typed entries.

An object that cannot be decoded must neither hide the others nor look deleted: its key takes its place.
"""

import logging
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Raw, Struct, field, structs

from gkm.hoststate.logs import fields
from gkm.kube.api import Change, Key, ListPage, Object, ObjectEntry, WatchEvent
from gkm.kube.errors import NO_RESPONSE, UNDECODABLE, UNREADABLE, ApiError, from_body
from gkm.kube.resources import Resource

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_GONE = 410


_Version = Annotated[str, msgspec.Meta(min_length=1)]
"""The resourceVersion of an object, a list or a bookmark. It must not be "", which starts a watch at any version."""


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
        ApiError: the body is no list.
    """
    try:
        listed = msgspec.json.decode(body, type=_List)
        heads = [(msgspec.json.decode(raw, type=_Head).metadata, raw) for raw in listed.items or ()]
    except UNDECODABLE as error:
        raise unreadable(resource, error) from error
    entries, unreadable_keys = [], []
    for head, raw in heads:
        entry = _entry(resource, head, raw)
        if entry is None:
            unreadable_keys.append((head.namespace, head.name))
        else:
            entries.append(entry)
    return ListPage(tuple(entries), listed.metadata.resource_version, tuple(unreadable_keys)), listed.metadata.continue_


def event(resource: Resource[T], line: bytes) -> WatchEvent[T]:
    """Return the event on a line of a watch.

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
        ApiError: the body cannot be decoded as the type of the resource.
    """
    try:
        return msgspec.json.decode(body, type=resource.type)
    except UNDECODABLE as error:
        raise unreadable(resource, error) from error


def document(path: str, body: bytes, wanted: type[T]) -> T:
    """Return a document that is no object of a resource.

    Raises:
        ApiError: the body cannot be decoded as `wanted`.
    """
    try:
        return msgspec.json.decode(body, type=wanted)
    except UNDECODABLE as error:
        raise _unreadable(path, error) from error


def unreadable(resource: Resource[Any], error: Exception) -> ApiError:
    """Return the error for a response that violates the API; its status is 0, so that callers retry with backoff."""
    return _unreadable(resource.kind, error)


def _unreadable(what: str, error: Exception) -> ApiError:
    return ApiError(NO_RESPONSE, UNREADABLE, f"the server's {what} cannot be read: {str(error)[:200]}")


def plain(value: Object) -> Mapping[str, Any]:
    """Return an object as JSON values."""
    if isinstance(value, Mapping):
        return value
    builtins: Mapping[str, Any] = msgspec.to_builtins(value)
    return builtins


def _entry(resource: Resource[T], head: _Named, raw: Raw) -> ObjectEntry[T] | None:
    try:
        value = msgspec.json.decode(raw, type=resource.type)
    except UNDECODABLE as error:
        # Stored before a schema became stricter, or by a newer version. It must not hide all others.
        name = f"{head.namespace}/{head.name}" if head.namespace else head.name
        _LOG.warning("object cannot be read", extra=fields(object=f"{resource.kind} {name}", why=str(error)))
        return None
    metadata = getattr(value, "metadata", None)
    texts = (
        _same(metadata, name, text) for name, text in zip(head.__struct_fields__, structs.astuple(head), strict=True)
    )
    return ObjectEntry(**dict(zip(head.__struct_fields__, texts, strict=True)), value=value)


def _same(metadata: object, name: str, text: str) -> str:
    """Return the text that the metadata of an object has, if it is equal: it is then held once."""
    found = getattr(metadata, name, None)
    return found if isinstance(found, str) and found == text else text
