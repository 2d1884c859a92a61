"""An API client for controllers: it sends no write unless this process is the leader.

A process learns by the clock alone that it may not lead any more. So leadership is checked right before each request,
here and nowhere else: a controller does not ask whether it leads. Reads are sent always.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from gkm.kube.api import EVERYTHING, PAGE_LIMIT, Api, ListPage, ListSelector, Object, Watch
from gkm.kube.elector import NotLeading
from gkm.kube.resources import Resource

T = TypeVar("T")


class LeaderApi(Api):
    """An API client that wraps `api`: every write raises NotLeading unless `leads` returns True."""

    def __init__(self, api: Api, leads: Callable[[], bool]) -> None:
        self._api = api
        self._leads = leads

    def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        """Return one object; raise ApiError 404 if it does not exist."""
        return self._api.get(resource, name, namespace)

    def list_pages(
        self, resource: Resource[T], selector: ListSelector = EVERYTHING, limit: int = PAGE_LIMIT
    ) -> Iterator[ListPage[T]]:
        """Yield a consistent list in pages of at most `limit` objects."""
        return self._api.list_pages(resource, selector, limit)

    def watch(self, resource: Resource[T], resource_version: str, selector: ListSelector = EVERYTHING) -> Watch[T]:
        """Return a watch of the changes after `resource_version`."""
        return self._api.watch(resource, resource_version, selector)

    def discover(self, path: str, document: type[T]) -> T:
        """Return the discovery document at a path, which lists kinds."""
        return self._api.discover(path, document)

    def log(self, pod: str, container: str, namespace: str, lines: int, most: int, *, previous: bool = False) -> bytes:
        """Return the last `lines` lines of a container's log, at most `most` bytes."""
        return self._api.log(pod, container, namespace, lines, most, previous=previous)

    def apply(self, resource: Resource[T], value: Object, *, field_manager: str, subresource: str = "") -> T:
        """Apply `value` server-side, if this process leads; else raise NotLeading."""
        self._check_leading()
        return self._api.apply(resource, value, field_manager=field_manager, subresource=subresource)

    def merge(
        self, resource: Resource[T], name: str, patch: Object, namespace: str | None = None, *, subresource: str = ""
    ) -> T:
        """Change an object by a merge patch, if this process leads; else raise NotLeading."""
        self._check_leading()
        return self._api.merge(resource, name, patch, namespace, subresource=subresource)

    def create(self, resource: Resource[T], value: Object, *, field_manager: str = "") -> T:
        """Create an object, if this process leads; else raise NotLeading."""
        self._check_leading()
        return self._api.create(resource, value, field_manager=field_manager)

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
        """Delete an object, if this process leads; else raise NotLeading."""
        self._check_leading()
        self._api.delete(resource, name, namespace, uid=uid, resource_version=resource_version, foreground=foreground)

    def _check_leading(self) -> None:
        if not self._leads():
            raise NotLeading("this process no longer holds the lease: another process may lead")
