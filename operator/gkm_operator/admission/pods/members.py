"""The caches that admission watches, as members of families in their order (docs/decisions/0046-families.md).

A review never waits for the watches: a cache that is not listed yet has an unknown runtime. Must never write to the
API.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from gkm.api.caches import HELD_BACK, ImageVolume
from gkm.api.meta import TRUE
from gkm.api.pod_caches import DEFAULT_CACHE
from gkm.hoststate.names import CacheRef, InvalidName
from gkm.kube.api import Api, ListSelector
from gkm.kube.index import Index
from gkm.kube.reflector import Reflector
from gkm.kube.resources import CLUSTERGKMCACHES, GKMCACHES, Resource
from msgspec import Struct, structs

from gkm_operator.admission.domains.requests import LabeledMetadata


class ThinCondition(Struct, frozen=True, gc=False):
    """A condition of a GKMCache or ClusterGKMCache, reduced to its type and status."""

    type: str
    status: str = ""


class ThinStatus(Struct, frozen=True, rename="camel", gc=False):
    """The fields of a cache's status that decide whether and how a pod gets it.

    `image` is the spec.image that the status is about.
    """

    runtime: str = ""
    image: str = ""
    image_volume: ImageVolume | None = None
    conditions: tuple[ThinCondition, ...] = ()
    held_back: bool = False

    def __post_init__(self) -> None:
        held = any((each.type, each.status) == (HELD_BACK, TRUE) for each in self.conditions)
        for name, value in (("held_back", held), ("conditions", ())):
            structs.force_setattr(self, name, value)


class Secret(Struct, frozen=True, gc=False):
    """A reference to an image pull Secret of a cache."""

    name: str = ""


class ThinSpec(Struct, frozen=True, rename="camel", gc=False):
    """The fields of a cache's spec that decide which pods and nodes use it."""

    family: str = ""
    generation: int | None = None
    pinned: bool | None = None
    image: str = ""
    image_pull_secrets: tuple[Secret, ...] = ()
    node_selector: dict[str, str] | None = None


class ThinMetadata(Struct, frozen=True, rename="camel", gc=False):
    """The name of a cache, and the time of its creation. `namespace` is None for a ClusterGKMCache."""

    name: str
    namespace: str | None = None
    creation_timestamp: str = ""


class ThinCache(Struct, frozen=True, gc=False):
    """A GKMCache or ClusterGKMCache as the webhook's watch holds it, reduced to a few fields."""

    metadata: ThinMetadata
    spec: ThinSpec = ThinSpec()
    status: ThinStatus = ThinStatus()

    @property
    def image_volume(self) -> ImageVolume | None:
        """Return the verified image of the cache as a volume, None unless it belongs to the present spec.image."""
        return self.status.image_volume if self.status.image == self.spec.image else None

    def outline(self, why: str) -> "ThinCache":  # noqa: ARG002 -- see gkm.kube.memory.HasOutline
        """Return a copy without its image, Secrets and node selector; it cannot be an image volume."""
        spec = structs.replace(self.spec, image="", image_pull_secrets=(), node_selector=None)
        return structs.replace(self, spec=spec)


def in_order(members: Iterable[ThinCache]) -> list[ThinCache]:
    """Return members of a family in the order in which nodes prefer them, as far as that is equal on every node."""
    by_name = sorted(members, key=lambda member: member.metadata.name)
    newest = sorted(by_name, key=lambda member: member.metadata.creation_timestamp, reverse=True)
    return sorted(newest, key=_rank)


def _rank(member: ThinCache) -> tuple[bool, bool, int]:
    pinned = bool(member.spec.pinned)
    return not pinned, member.status.held_back and not pinned, -(member.spec.generation or 0)


class ThinNamespace(Struct, frozen=True):
    """A Namespace as the webhook's watch holds it; `default` is the name of its default cache, "" if it has none."""

    metadata: LabeledMetadata
    default: str = ""

    def __post_init__(self) -> None:
        structs.force_setattr(self, "default", (self.metadata.labels or {}).get(DEFAULT_CACHE, ""))
        structs.force_setattr(self, "metadata", LabeledMetadata())


CACHES, CLUSTER_CACHES = GKMCACHES.of(ThinCache), CLUSTERGKMCACHES.of(ThinCache)
NAMESPACES: Resource[ThinNamespace] = Resource(
    "v1", "Namespace", "namespaces", namespaced=False, type=ThinNamespace, metadata_only=True
)
_MAX_MEMBERS: Final = 256
"""Limit of members of a family that one review looks at; a user can create any number."""


class ObservedCaches:
    """Returns facts about caches from watches of caches and Namespaces. Thread-safe, and never waits."""

    def __init__(self, api: Api) -> None:
        self._members: Index[CacheRef, ThinCache] = Index(_families, lambda cache: cache.metadata.name)
        self._caches = Reflector(api, CACHES, self._members.change)
        self._cluster_caches = Reflector(api, CLUSTER_CACHES, self._members.change)
        self._namespaces = Reflector(api, NAMESPACES, selector=ListSelector(labels=DEFAULT_CACHE))

    def watches(self) -> tuple[Reflector[Any], ...]:
        """Return the watches of caches and Namespaces, for the caller to start."""
        return self._caches, self._cluster_caches, self._namespaces

    def runtime(self, ref: CacheRef) -> str | None:
        """Return the runtime of a cache, "" while it is unknown; None if the watch has not shown the cache."""
        runtimes = [member.status.runtime for member in self.members(ref)]
        return next(filter(None, runtimes), "") if runtimes else None

    def members(self, ref: CacheRef) -> Sequence[ThinCache]:
        """Return the caches that are members of a family in order of preference, at most _MAX_MEMBERS."""
        return in_order(self._members.get(ref, _MAX_MEMBERS))

    def default(self, namespace: str) -> str:
        """Return the name of the default cache of a namespace; "" if it has none, or the watch has not shown it."""
        found = self._namespaces.get(namespace)
        return "" if found is None else found.default


def _families(cache: ThinCache) -> Iterator[CacheRef]:
    """Yield the family of the cache's own name, and the family that it names; skip names that no volume can have."""
    for name in {cache.metadata.name, cache.spec.family} - {""}:
        with suppress(InvalidName):
            yield CacheRef(cache.metadata.namespace, name)
