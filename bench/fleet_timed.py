"""The product's API client, with the time when the reader of a watch requests the next event."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from gkm.kube import client
from gkm.kube.api import EVERYTHING, PAGE_LIMIT, Api, ListPage, ListSelector, WatchEvent
from gkm.kube.client import HttpWatch
from gkm.kube.resources import Resource

T = TypeVar("T")


@dataclass(frozen=True)
class TimedWatch(Generic[T]):
    """A watch that reports every event after its processing."""

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
    """Lists and watches; `took` receives the resourceVersion of every change."""

    def __init__(self, kubeconfig: str, took: Callable[[str], None]) -> None:
        self._api = client.connect(kubeconfig)
        self._took = took

    @classmethod
    def api(cls, kubeconfig: str, took: Callable[[str], None]) -> Api:
        """Return it as the Api of a reflector, which needs only list and watch."""
        return cast("Api", cls(kubeconfig, took))

    def list_pages(
        self, resource: Resource[T], selector: ListSelector = EVERYTHING, limit: int = PAGE_LIMIT
    ) -> Iterator[ListPage[T]]:
        """Yield a list in pages."""
        return self._api.list_pages(resource, selector, limit)

    def watch(self, resource: Resource[T], resource_version: str, selector: ListSelector = EVERYTHING) -> TimedWatch[T]:
        """Return a watch."""
        return TimedWatch(self._api.watch(resource, resource_version, selector), self._took)
