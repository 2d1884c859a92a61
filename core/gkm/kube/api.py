"""The Kubernetes API as the controllers use it: a Protocol that `client.HttpApi` implements."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from gkm.kube.errors import ApiError
from gkm.kube.resources import Resource

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Object = Struct | Mapping[str, Any]
"""An object to write: a typed struct or a JSON mapping, with apiVersion, kind and metadata.name."""

Key = tuple[str, str]
"""(namespace, name); the namespace is "" for a cluster-wide object."""

PAGE_LIMIT = 250
"""Objects in a page: half of client-go's page size (tools/pager), because a node object may hold hundreds of pods."""


class Change(StrEnum):
    """The type of a watch event of the Kubernetes API (metav1.WatchEvent); errors are raised instead."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True)
class ObjectEntry(Generic[T_co]):
    """One object of a list or a watch event, with its resourceVersion. `namespace` is "" for a cluster-wide object."""

    namespace: str
    name: str
    resource_version: str
    value: T_co

    @property
    def key(self) -> Key:
        """Return namespace and name of the object."""
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T_co]):
    """One page of a list of the Kubernetes API; all pages of a list have the same `resource_version`.

    `unreadable` are the keys of objects that exist and cannot be decoded as the type of the resource.
    """

    entries: tuple[ObjectEntry[T_co], ...]
    resource_version: str
    unreadable: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T_co]):
    """One watch event: a change of an object. A BOOKMARK has no entry and only advances `resource_version`.

    An object that cannot be decoded as the type of the resource has no entry, but its key in `unreadable`.
    """

    change: Change
    resource_version: str
    entry: ObjectEntry[T_co] | None = None
    unreadable: Key | None = None


@dataclass(frozen=True, slots=True)
class ListSelector:
    """Which objects of a collection are listed or watched; an empty namespace selects all namespaces."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""


EVERYTHING = ListSelector()


class Watch(Protocol[T_co]):
    """An open watch of the Kubernetes API. Iteration ends when the server ends the watch, or after `close`."""

    def __iter__(self) -> Iterator[WatchEvent[T_co]]:
        """Yield changes.

        Raises:
            ApiError: 410 when the resourceVersion is too old, status 0 when the connection broke.
        """

    def close(self) -> None:
        """End the watch; an iterating thread returns soon. Idempotent."""


class Api(Protocol):
    """The verbs of the Kubernetes API. Every call is thread-safe, bounded in time, and raises ApiError.

    `namespace` is None for cluster-wide kinds.
    """

    def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        """Return one object; raise ApiError 404 if it does not exist."""

    def find(self, resource: Resource[T], name: str, namespace: str | None = None) -> T | None:
        """Return one object, None if the object or its kind does not exist (404)."""
        try:
            return self.get(resource, name, namespace)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    def list_pages(
        self, resource: Resource[T], selector: ListSelector = EVERYTHING, limit: int = PAGE_LIMIT
    ) -> Iterator[ListPage[T]]:
        """Yield a consistent list in pages of `limit` objects; raise ApiError 410 if the continue token expires."""

    def watch(self, resource: Resource[T], resource_version: str, selector: ListSelector = EVERYTHING) -> Watch[T]:
        """Return a watch of the changes after `resource_version`."""

    def apply(self, resource: Resource[T], value: Object, *, field_manager: str, subresource: str = "") -> T:
        """Apply `value` server-side, forced: `field_manager` takes over the fields of other managers.

        The server removes fields that this manager applied before and that `value` lacks. It creates a missing object,
        but answers 404 for a subresource of one.
        """

    def merge(
        self, resource: Resource[T], name: str, patch: Object, namespace: str | None = None, *, subresource: str = ""
    ) -> T:
        """Change an object by a merge patch (RFC 7386) and return it; raise ApiError 409 for an old resourceVersion."""

    def create(self, resource: Resource[T], value: Object, *, field_manager: str = "") -> T:
        """Create an object in the namespace of its metadata and return it; raise ApiError 409 if it exists."""

    def delete(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        resource_version: str = "",
        foreground: bool = False,
    ) -> None:
        """Delete an object; raise ApiError 404 if it does not exist, and 409 if its uid is not `uid`.

        With `resource_version`, the error 409 also comes for an object that has changed since.

        An object with finalizers stays, with a deletionTimestamp, until the last of them is removed. In the foreground,
        the garbage collector has one, until the dependents are gone that block the deletion.
        """

    def discover(self, path: str, document: type[T]) -> T:
        """Return a document about kinds: `/api/v1`, `/apis/GROUP` or `/apis/GROUP/VERSION`; 404 if it is not served."""

    def log(self, pod: str, container: str, namespace: str, lines: int, most: int, *, previous: bool = False) -> bytes:
        """Return the last `lines` lines of a container's log, at most `most` bytes; `previous` selects its last run."""
