"""Decode lists and watch events into typed entries.

An object that cannot be decoded must not hide the others, and must not look deleted: its key takes its place.
"""

import logging
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from gkm.hoststate.logs import fields
from gkm.kube.api import Change, ListPage, Object, ObjectEntry, WatchEvent
from gkm.kube.errors import NO_RESPONSE, UNDECODABLE, UNREADABLE, ApiError, from_body
from gkm.kube.resources import Resource

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_GONE = 410


_Version = Annotated[str, msgspec.Meta(min_length=1)]
"""A resourceVersion that is not empty: a watch from "" would start at any version."""


class _Meta(Struct, rename="camel"):
    resource_version: _Version
    continue_: str = field(default="", name="continue")


class _Named(Struct, rename="camel"):
    name: str
    resource_version: _Version
    namespace: str = ""


_HEAD = frozenset(_Named.__struct_fields__)


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
    """Decode a page of a list of the Kubernetes API; return it with the continue token, "" on the last page.

    Raises:
        ApiError: the body is no list.
    """
    try:
        listed = msgspec.json.decode(body, type=_List)
        found = [_entry(resource, raw) for raw in listed.items or ()]
    except UNDECODABLE as error:
        raise unreadable(resource.kind, error) from error
    entries = tuple(entry for entry in found if isinstance(entry, ObjectEntry))
    unreadable_keys = tuple((one.namespace, one.name) for one in found if isinstance(one, _Named))
    return ListPage(entries, listed.metadata.resource_version, unreadable_keys), listed.metadata.continue_


def event(resource: Resource[T], line: bytes) -> WatchEvent[T]:
    """Decode one line of a watch response as a watch event.

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
        entry = _entry(resource, decoded.object)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors, as is an unknown type of event
        raise unreadable(resource.kind, error) from error
    if isinstance(entry, _Named):
        return WatchEvent(change, entry.resource_version, None, (entry.namespace, entry.name))
    return WatchEvent(change, entry.resource_version, entry, None)


def single_object(resource: Resource[T], body: bytes) -> T:
    """Decode a response with a single object as the type of the resource.

    Raises:
        ApiError: the body cannot be decoded as the type of the resource.
    """
    return document(resource.kind, body, resource.type)


def document(what: str, body: bytes, wanted: type[T]) -> T:
    """Decode a response, such as a discovery document; errors say `what` it is.

    Raises:
        ApiError: the body cannot be decoded as `wanted`.
    """
    try:
        return msgspec.json.decode(body, type=wanted)
    except UNDECODABLE as error:
        raise unreadable(what, error) from error


def unreadable(what: str, error: Exception) -> ApiError:
    """Return the error for a response that cannot be decoded; status 0, so that callers retry with backoff."""
    return ApiError(NO_RESPONSE, UNREADABLE, f"the server's {what} cannot be read: {str(error)[:200]}")


def plain(value: Object) -> Mapping[str, Any]:
    """Return an object as a mapping of JSON values; a msgspec struct is converted."""
    if isinstance(value, Mapping):
        return value
    builtins: Mapping[str, Any] = msgspec.to_builtins(value)
    return builtins


def _entry(resource: Resource[T], raw: Raw) -> ObjectEntry[T] | _Named:
    """Return the entry of an object; its name alone if it cannot be decoded.

    JSON is read once if the type has these texts, otherwise twice.
    """
    try:
        value = msgspec.json.decode(raw, type=resource.type)
    except UNDECODABLE as error:
        # Stored before a schema became stricter, or by a newer version. It must not hide all others.
        head = _head(raw)
        name = f"{head.namespace}/{head.name}" if head.namespace else head.name
        _LOG.warning(
            "object of the API server cannot be decoded, a watch keeps its last readable version",
            extra=fields(object=f"{resource.kind} {name}", why=str(error)),
        )
        return head
    metadata: Any = getattr(value, "metadata", None)
    if _HEAD.issubset(getattr(metadata, "__struct_fields__", ())) and metadata.name and metadata.resource_version:
        return ObjectEntry(metadata.namespace, metadata.name, metadata.resource_version, value)
    head = _head(raw)
    return ObjectEntry(
        _same(metadata, "namespace", head.namespace),
        _same(metadata, "name", head.name),
        _same(metadata, "resource_version", head.resource_version),
        value,
    )


def _head(raw: Raw) -> _Named:
    return msgspec.json.decode(raw, type=_Head).metadata


def _same(metadata: object, name: str, text: str) -> str:
    """Return the text that the metadata of an object has, if it is equal: it is then held once."""
    found = getattr(metadata, name, None)
    return found if isinstance(found, str) and found == text else text
