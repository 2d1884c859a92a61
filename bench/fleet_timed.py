"""The product's API client, which says when the reader of a watch comes back for more: then an event was taken in."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from gkm.kube import client
from gkm.kube.api import EVERYTHING, PAGE_LIMIT, Api, ListPage, ListSelector, WatchEvent
from gkm.kube.resources import Resource
from gkm.kube.watches import HttpWatch

T = TypeVar("T")


@dataclass(frozen=True)
class TimedWatch(Generic[T]):
    """A watch that tells of every event after it was handled."""

    watch: HttpWatch[T]
    took: Callable[[str], None]

    def __iter__(self) -> Iterator[WatchEvent[T]]:
        """Yield changes."""
        for event in self.watch:
            yield event
            if event.entry is not None:
                self.took(event.resource_version)

    def close(self) -> None:
        """End it."""
        self.watch.close()


class Timed:
    """Lists and watches; `took` is told the resourceVersion of every change."""

    def __init__(self, kubeconfig: str, took: Callable[[str], None]) -> None:
        self._api = client.connect(kubeconfig)
        self._took = took

    @classmethod
    def api(cls, kubeconfig: str, took: Callable[[str], None]) -> Api:
        """Return it as what reflectors take; a list and a watch is all that they ask for."""
        return cast("Api", cls(kubeconfig, took))

    def list_pages(
        self, resource: Resource[T], selector: ListSelector = EVERYTHING, limit: int = PAGE_LIMIT
    ) -> Iterator[ListPage[T]]:
        """Yield a list in pages."""
        return self._api.list_pages(resource, selector, limit)

    def watch(self, resource: Resource[T], resource_version: str, selector: ListSelector = EVERYTHING) -> TimedWatch[T]:
        """Return a watch."""
        return TimedWatch(self._api.watch(resource, resource_version, selector), self._took)
