"""A watch of the API in memory, fed by `support.kube.fake_api.FakeApi`, and what a selector selects."""

import json
from collections.abc import Iterator
from queue import Queue
from typing import Any, TypeVar

from gkm.kube import decoding
from gkm.kube.api import Change, ListSelector, WatchEvent
from gkm.kube.errors import ApiError
from gkm.kube.resources import Resource
from support.host.waiting import scaled

T = TypeVar("T")
Json = dict[str, Any]
Key = tuple[str, str, str]


class FakeWatch(Iterator[WatchEvent[T]]):
    """A watch that is fed by the fake."""

    def __init__(self, resource: Resource[T], selector: ListSelector) -> None:
        self.resource = resource
        self.selector = selector
        self.closed = False
        self._queue: Queue[WatchEvent[T] | ApiError | None] = Queue()

    def __iter__(self) -> "FakeWatch[T]":
        return self

    def __next__(self) -> WatchEvent[T]:
        got = self._queue.get(timeout=scaled(30))
        if isinstance(got, ApiError):
            raise got
        if got is None:
            self._queue.put(None)
            raise StopIteration
        return got

    @property
    def idle(self) -> bool:
        """Return whether nothing waits to be read."""
        return self._queue.empty()

    def offer(self, change: Change, value: Json) -> None:
        meta = value["metadata"]
        key = (self.resource.plural, meta.get("namespace", ""), meta["name"])
        if is_selected(self.resource, self.selector, key, value):
            shown = reduced(self.resource, value)
            self.put(decoding.event(self.resource, json.dumps({"type": change, "object": shown}).encode()))

    def put(self, event: WatchEvent[T]) -> None:
        self._queue.put(event)

    def fail(self, error: ApiError) -> None:
        self._queue.put(error)

    def close(self) -> None:
        self.closed = True
        self._queue.put(None)


def reduced(resource: Resource[Any], value: Json) -> Json:
    """Return an object as the server sends it: only its metadata, if the resource wants that."""
    return {"metadata": value["metadata"]} if resource.metadata_only else value


def is_selected(resource: Resource[Any], selector: ListSelector, key: Key, value: Json) -> bool:
    wanted = [pair.partition("=") for pair in selector.labels.split(",") if pair]
    labels = value["metadata"].get("labels") or {}
    fields = dict(pair.split("=") for pair in selector.fields.split(",") if pair)
    return (
        key[0] == resource.plural
        and selector.namespace in ("", key[1])
        and all(name in labels and (not equals or labels[name] == label) for name, equals, label in wanted)
        and fields.get("metadata.name", key[2]) == key[2]
    )
