"""Find which kinds the API server serves from its discovery documents; answers are cached briefly.

A document is read per API group and version, so kinds of one group share requests. It must never guess: a kind is
absent only if the API server itself answers so.
"""

import re
import time
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct

from gkm.hoststate.lru import LRUCache
from gkm.hoststate.pacing import Clock
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.resources import Resource

REMEMBERED_SECONDS = 60.0
_MAX_GROUPS = 256
_GROUP = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_MAX_VERSIONS = 16
"""Versions of a group that are read; the preferred one is the first. Kubernetes' own groups have at most four."""


class KindName(NamedTuple):
    """An API group ("" for the core group) and a kind in it."""

    group: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @classmethod
    def of(cls, api_version: str, kind: str) -> "KindName":
        """Return the name of a kind by the apiVersion of an object."""
        return cls(api_version.rpartition("/")[0], kind)


Served = tuple[Resource[dict[str, Any]], ...]
"""The resources of a kind, one for each served version; the preferred version is first."""


class _Version(Struct):
    version: Annotated[str, Meta(pattern=r"^[a-z0-9]{1,63}\Z")]


class _Group(Struct, rename="camel"):
    preferred_version: _Version
    versions: list[_Version]


class _Kind(Struct):
    name: Annotated[str, Meta(min_length=1)]
    kind: str
    namespaced: bool


class _Kinds(Struct):
    resources: list[_Kind]


class Discovery:
    """Reads and caches the API server's discovery documents. Thread-safe; two threads may read one document at once."""

    def __init__(self, api: Api, clock: Clock = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._groups: LRUCache[str, tuple[float, dict[str, Served]]] = LRUCache(_MAX_GROUPS)

    def served(self, name: KindName) -> Served:
        """Return the resources of a kind in all served versions, empty if the API server does not serve the kind.

        Raises:
            ApiError: the API server does not answer.
        """
        read_at, kinds = self._groups.get(name.group) or (float("-inf"), {})
        if self._clock() >= read_at + REMEMBERED_SECONDS:
            kinds = self._read(name.group)
            self._groups.put(name.group, (self._clock(), kinds))
        return kinds.get(name.kind, ())

    def forget(self, name: KindName) -> None:
        """Drop the cached answer for a kind's API group, because a request for the kind got 404."""
        self._groups.put(name.group, (float("-inf"), {}))

    def _read(self, group: str) -> dict[str, Served]:
        found: dict[str, Served] = {}
        for version in self._versions(group):
            try:
                kinds = self._api.discover(f"/apis/{version}" if group else f"/api/{version}", _Kinds).resources
            except ApiError as error:
                if not error.not_found:
                    raise
                continue  # it ended since the list of versions was read
            for kind in kinds:
                if "/" not in kind.name:  # that would be a subresource
                    resource = Resource(version, kind.kind, kind.name, namespaced=kind.namespaced, type=dict[str, Any])
                    found[kind.kind] = (*found.get(kind.kind, ()), resource)
        return found

    def _versions(self, group: str) -> list[str]:
        if not group:
            return ["v1"]
        if not _GROUP.fullmatch(group):  # it becomes a part of a path
            return []
        try:
            read = self._api.discover(f"/apis/{group}", _Group)
        except ApiError as error:
            if not error.not_found:
                raise
            return []
        versions = [read.preferred_version, *read.versions]
        return list(dict.fromkeys(f"{group}/{found.version}" for found in versions))[:_MAX_VERSIONS]


def is_served(api: Api, resource: Resource[Any]) -> bool:
    """Return whether the API server serves a kind in the version that GKM uses.

    Raises:
        ApiError: the API server does not respond, or refuses.
    """
    try:
        next(iter(api.list_pages(resource, limit=1)))
    except ApiError as error:
        if error.not_found:
            return False
        raise
    return True
