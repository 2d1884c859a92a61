"""Reads the parents and children of which a watch holds only outlines (gkm.kube.memory), when a pass needs the rest.

A large child that is as required is read again only after it, or what is required of it, has changed.
"""

import hashlib
from typing import TypeVar

import msgspec
from gkm.hoststate.lru import LRUCache
from gkm.kube.api import Api
from gkm.kube.live_objects import live_object

from gkm_operator.cliques.desired import MAX_CHILDREN, DesiredObject, patch
from gkm_operator.cliques.kinds import RESOURCES, Child, Json, Parent

T = TypeVar("T", bound=Parent | Child)

_Version = tuple[str, str]


class LargeObjects:
    """Thread-safe."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._settled: LRUCache[_Version, bytes] = LRUCache(2 * MAX_CHILDREN)
        """The hash of what was required of a child of this uid and version, which it met."""

    def whole(self, value: T) -> T | None:
        """Return an object with all its fields; None if it is gone.

        Raises:
            ApiError, Retry: the API server did not answer, or the object cannot be decoded.
        """
        metadata = value.metadata
        if not metadata.oversized:
            return value
        found: T | None = live_object(self._api, RESOURCES[type(value)], metadata.namespace, metadata.name)
        return found if found is not None and found.metadata.uid == metadata.uid else None

    def patch(self, desired: DesiredObject, observed: Child) -> Json:
        """Return the merge patch that makes a child as required; {} if it is, or is gone.

        Raises:
            ApiError, Retry: as `whole`.
        """
        if not observed.metadata.oversized:
            return patch(desired, observed)
        version, wanted = (observed.metadata.uid, observed.metadata.resource_version), _hash(desired)
        if self._settled.get(version) == wanted:
            return {}
        found = self.whole(observed)
        made = {} if found is None else patch(desired, found)
        if not made:
            self._settled.put(version, wanted)
        return made


def _hash(desired: DesiredObject) -> bytes:
    parts = desired.labels, desired.annotations, desired.spec
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).digest()
