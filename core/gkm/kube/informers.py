"""One watch of a kind in a process, for all its readers.

A kind has one type here, thin enough to hold thousands of objects, and each reader derives from it what it needs
(gkm.kube.memory bounds it). A watch starts with the first reader that starts it; a reader that subscribes later gets
what is there first. So a process has one list, one connection and one copy of the objects, whoever reads them.
"""

from threading import Lock
from typing import Any, TypeVar

from gkm.kube.api import EVERYTHING, Api, ListSelector
from gkm.kube.reflector import Reflector
from gkm.kube.resources import Resource

T = TypeVar("T")
_Watched = tuple[str, str, ListSelector]
"""Version and plural of a kind, and which of its objects."""


class Informers:
    """The shared watches of a process, after client-go's SharedInformerFactory. Thread-safe."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._reflectors: dict[_Watched, Reflector[Any]] = {}
        self._lock = Lock()

    def of(self, resource: Resource[T], selector: ListSelector = EVERYTHING) -> Reflector[T]:
        """Return the one watch of a kind, started or not; `subscribe` to it, and `start` it.

        Raises:
            ValueError: another reader has it as another type.
        """
        with self._lock:
            key = (resource.api_version, resource.plural, selector)
            found = self._reflectors.setdefault(key, Reflector(self._api, resource, selector=selector))
        if found.resource != resource:
            raise ValueError(f"{resource.plural} are watched already, as {found.resource.type.__name__}")
        return found
