"""The Kubernetes API as our controllers see it; `client.HttpApi` is the real one, tests have a fake like it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from gkm.kube.resources import Resource

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Object = Struct | Mapping[str, Any]
"""What is written: a typed value, or JSON as it is. It names its apiVersion, kind and metadata.name."""

Key = tuple[str, str]
"""(namespace, name); the namespace is "" for a cluster-wide object."""

PAGE_LIMIT = 250
"""Objects a page: half of client-go's page size (tools/pager), because a node object may hold hundreds of pods."""


class Change(StrEnum):
    """What a watch event says (metav1.WatchEvent); errors are raised instead."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True)
class ObjectEntry(Generic[T_co]):
    """An object with what the reflector needs to know of it. `namespace` is "" for a cluster-wide object."""

    namespace: str
    name: str
    resource_version: str
    value: T_co

    @property
    def key(self) -> Key:
        """Return what it is found by."""
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T_co]):
    """A part of a list; every page of one list has the same `resource_version`.

    `unreadable` are objects that are there and cannot be read as the type that was asked for: not deleted.
    """

    entries: tuple[ObjectEntry[T_co], ...]
    resource_version: str
    unreadable: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T_co]):
    """A change. A BOOKMARK has no entry and only moves `resource_version` on.

    An object that cannot be read as the type that was asked for has no entry, but its key in `unreadable`.
    """

    change: Change
    resource_version: str
    entry: ObjectEntry[T_co] | None = None
    unreadable: Key | None = None


@dataclass(frozen=True, slots=True)
class ListSelector:
    """Which objects of a collection; an empty namespace means all of them. Selectors in the API's own syntax."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""


EVERYTHING = ListSelector()


class Watch(Protocol[T_co]):
    """A watch that runs: iterate over it; it ends when the server ends it, and after `close` from any thread."""

    def __iter__(self) -> Iterator[WatchEvent[T_co]]:
        """Yield changes.

        Raises:
            ApiError: 410 when the resourceVersion is too old, status 0 when the connection broke.
        """
        ...

    def close(self) -> None:
        """End it; a thread that waits in it returns soon. Idempotent."""
        ...


class Api(Protocol):
    """The verbs. Every call is bounded in time and raises ApiError; all are safe to call from several threads.

    `namespace` is None for cluster-wide kinds.
    """

    def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        """Return one object."""
        ...

    def list_pages(
        self, resource: Resource[T], selector: ListSelector = EVERYTHING, limit: int = PAGE_LIMIT
    ) -> Iterator[ListPage[T]]:
        """Yield a consistent list in pages; raises 410 when it took so long that the server forgot its start."""
        ...

    def watch(self, resource: Resource[T], resource_version: str, selector: ListSelector = EVERYTHING) -> Watch[T]:
        """Return a watch of what changes after `resource_version`."""
        ...

    def apply(self, resource: Resource[T], value: Object, *, field_manager: str, subresource: str = "") -> T:
        """Make the fields in `value` so, and own them, also those of another manager (server-side apply, forced).

        Fields that this manager applied before and that are no longer in `value` go. On a subresource, a missing
        object is a 404; else it is made.
        """
        ...

    def merge(self, resource: Resource[T], name: str, patch: Object, namespace: str | None = None) -> T:
        """Change an object by a merge patch (RFC 7386). A metadata.resourceVersion in it must still be the current."""
        ...

    def create(self, resource: Resource[T], value: Object) -> T:
        """Make an object; 409 AlreadyExists when it is there. The namespace is the one in its metadata."""
        ...

    def delete(self, resource: Resource[Any], name: str, namespace: str | None = None) -> None:
        """Delete an object; 404 when it is not there."""
        ...
