"""The root workloads of pods: their controllers, followed upward as far as GKM may read.

A Job is a root even if a CronJob made it: each run of a CronJob is a workload that ends, and its domain ends with it.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from gkm.api.mnnvl_metadata import MnnvlMetadata, Owner
from gkm.hoststate.lru import LRUCache
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.resources import Resource
from msgspec import Struct, structs

from gkm_operator.pods import PodMetadata, WatchedPod

MAX_DEPTH = 8
"""A worker of a LeaderWorkerSet has four controllers above it: StatefulSet, Pod, StatefulSet, LeaderWorkerSet."""
MAX_CACHED = 8192

_PLURALS = {
    ("", "Pod"): "pods",
    ("apps", "Deployment"): "deployments",
    ("apps", "ReplicaSet"): "replicasets",
    ("apps", "StatefulSet"): "statefulsets",
    ("batch", "Job"): "jobs",
    ("jobset.x-k8s.io", "JobSet"): "jobsets",
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): "leaderworkersets",
}
"""The kinds that deploy/components/domains lets the controllers read."""
_VERSION = re.compile(r"v[0-9][a-z0-9]{0,30}", re.ASCII)
_FORBIDDEN, _NOT_FOUND = 403, 404


class Owned(Struct, frozen=True):
    """Any object that may have a controller."""

    metadata: MnnvlMetadata


class _OwnerAbsent(Exception):
    """A controller does not exist any more, or is going: the garbage collector deletes its dependents."""


@dataclass(frozen=True, slots=True)
class _Controller:
    """The controller of an object: None above a root. `readable` is false where GKM may not read the object."""

    owner: Owner | None = None
    readable: bool = True


_UNREADABLE = _Controller(readable=False)


_Reference = tuple[str, Owner]
"""A namespace and the whole reference: users write its parts, so a uid alone may be that of another object."""


class RootOwners:
    """Finds roots. Thread-safe; remembers the controllers of objects, which do not change."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._cache: LRUCache[_Reference, _Controller] = LRUCache(MAX_CACHED)

    def of(self, pods: Iterable[WatchedPod], *, fresh: bool = False) -> list[Owner]:
        """Return the roots of pods, each once, in a stable order; none for a pod that goes with its controller.

        `fresh` reads the controllers again.

        Raises:
            ApiError: a controller could not be read, for a passing reason.
        """
        cache: LRUCache[_Reference, _Controller] = LRUCache(MAX_CACHED) if fresh else self._cache
        found: dict[str, Owner] = {}
        for pod in pods:
            with suppress(_OwnerAbsent):
                root = self._root(pod.metadata, cache)
                found[root.uid] = root
        return sorted(found.values(), key=lambda owner: (owner.kind, owner.name, owner.uid))

    def _root(self, pod: PodMetadata, cache: LRUCache[_Reference, _Controller]) -> Owner:
        root, above = Owner("v1", "Pod", pod.name, pod.uid), pod.controller
        for _ in range(MAX_DEPTH):
            if above is None:
                break
            controller = cache.get((pod.namespace, above))
            if controller is None:
                controller = self._controller_of(above, pod.namespace)
                cache.put((pod.namespace, above), controller)
            if not controller.readable:
                break
            root, above = above, controller.owner
        # Several pods may name one object with and without `controller`: it is one owner of the domain.
        return structs.replace(root, controller=False)

    def _controller_of(self, owner: Owner, namespace: str) -> _Controller:
        """Return the controller of an object.

        Raises:
            _Gone: the object does not exist, or is being deleted.
        """
        group, _, version = owner.api_version.rpartition("/")
        plural = _PLURALS.get((group, owner.kind))
        # Users write owner references, and the version becomes a part of a path.
        if plural is None or not _VERSION.fullmatch(version):
            return _UNREADABLE
        resource = Resource(owner.api_version, owner.kind, plural, namespaced=True, type=Owned)
        try:
            metadata = self._api.get(resource, owner.name, namespace).metadata
        except ApiError as error:
            if error.reason == "NotFound":
                raise _OwnerAbsent from error
            if error.status in (_FORBIDDEN, _NOT_FOUND):  # the kind is not served
                return _UNREADABLE
            raise
        if metadata.uid != owner.uid or metadata.terminating:
            raise _OwnerAbsent
        return _Controller(metadata.controller)
