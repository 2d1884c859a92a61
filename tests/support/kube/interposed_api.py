"""An API between a process and another API: a test decides about every request, before and after it is answered."""

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from gkm.kube.api import EVERYTHING, PAGE_LIMIT, Api, ListPage, ListSelector, Object, Watch
from gkm.kube.decoding import plain
from gkm.kube.errors import ApiError
from gkm.kube.resources import Resource

T = TypeVar("T")


class Call(NamedTuple):
    """A request; a list has no name."""

    verb: str
    plural: str
    name: str = ""

    @property
    def writes(self) -> bool:
        return self.verb not in {"get", "list", "discover"}


Around = Callable[[Call, Callable[[], Any]], Any]
"""Called with a request and the function that sends it; returns the answer."""


class Killed(BaseException):
    """The process that sent a request is no more."""


class InterposedApi(Api):
    """`around` gets every request but watches."""

    def __init__(self, api: Api, around: Around) -> None:
        self._api = api
        self._around = around

    def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        call = Call("get", resource.plural, name)
        found: T = self._around(call, lambda: self._api.get(resource, name, namespace))
        return found

    def list_pages(
        self, resource: Resource[T], selector: ListSelector = EVERYTHING, limit: int = PAGE_LIMIT
    ) -> Iterator[ListPage[T]]:
        call = Call("list", resource.plural)
        yield from self._around(call, lambda: list(self._api.list_pages(resource, selector, limit)))

    def watch(self, resource: Resource[T], resource_version: str, selector: ListSelector = EVERYTHING) -> Watch[T]:
        return self._api.watch(resource, resource_version, selector)

    def apply(self, resource: Resource[T], value: Object, *, field_manager: str, subresource: str = "") -> T:
        def send() -> T:
            return self._api.apply(resource, value, field_manager=field_manager, subresource=subresource)

        found: T = self._around(Call("apply", resource.plural, plain(value)["metadata"].get("name", "")), send)
        return found

    def merge(
        self, resource: Resource[T], name: str, patch: Object, namespace: str | None = None, *, subresource: str = ""
    ) -> T:
        def send() -> T:
            return self._api.merge(resource, name, patch, namespace, subresource=subresource)

        found: T = self._around(Call("merge", resource.plural, name), send)
        return found

    def create(self, resource: Resource[T], value: Object, *, field_manager: str = "") -> T:
        call = Call("create", resource.plural, plain(value)["metadata"].get("name", ""))
        found: T = self._around(call, lambda: self._api.create(resource, value, field_manager=field_manager))
        return found

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
        self._around(
            Call("delete", resource.plural, name),
            lambda: self._api.delete(
                resource, name, namespace, uid=uid, resource_version=resource_version, foreground=foreground
            ),
        )

    def discover(self, path: str, document: type[T]) -> T:
        found: T = self._around(Call("discover", path), lambda: self._api.discover(path, document))
        return found

    def log(self, pod: str, container: str, namespace: str, lines: int, most: int, *, previous: bool = False) -> bytes:
        return self._api.log(pod, container, namespace, lines, most, previous=previous)


class RequestCounter:
    """Sends each request, and counts it."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, _call: Call, send: Callable[[], Any]) -> Any:  # noqa: ANN401 -- any answer
        self.count += 1
        return send()


def killed_at(step: int, *, after: bool) -> Around:
    """Kill the process at its request with this number, from 0, before it is sent or after it is answered."""
    count = iter(range(1 << 30))

    def around(_call: Call, send: Callable[[], Any]) -> Any:  # noqa: ANN401 -- any answer
        number = next(count)
        if number > step or (number == step and not after):
            raise Killed
        answer = send()
        if number == step:
            raise Killed
        return answer

    return around


def failing_at(step: int, *, after: bool) -> Around:
    """Fail the request with this number, once: it never arrives, or its answer is lost."""
    count = iter(range(1 << 30))

    def around(_call: Call, send: Callable[[], Any]) -> Any:  # noqa: ANN401 -- any answer
        fails = next(count) == step
        if fails and not after:
            raise ApiError(500, "InternalError", "it did not arrive")
        answer = send()
        if fails:
            raise ApiError(504, "Timeout", "the answer was lost")
        return answer

    return around


def unreliable(chance: random.Random, share: float, refused: ApiError) -> Around:
    """Refuse this share of the requests, and lose the answer to the same share of the others."""

    def around(_call: Call, send: Callable[[], Any]) -> Any:  # noqa: ANN401 -- any answer
        if chance.random() < share:
            raise ApiError(refused.status, refused.reason, refused.message)
        answer = send()
        if chance.random() < share:
            raise ApiError(504, "Timeout", "the answer was lost")
        return answer

    return around
