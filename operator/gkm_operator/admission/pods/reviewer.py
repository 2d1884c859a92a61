"""The reviewer of pods that name caches, and the watches of caches and namespaces that it reads.

A review never waits for the watches: a cache that is not listed yet has an unknown runtime. Must never write to the
API.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from gkm.api.config import Config
from gkm.api.pod_caches import DEFAULT_CACHE
from gkm.hoststate.names import CacheRef, InvalidName
from gkm.kube.api import Api, ListSelector
from gkm.kube.index import Index
from gkm.kube.reflector import Reflector
from gkm.kube.resources import CLUSTERGKMCACHES, GKMCACHES, Resource
from msgspec import Struct, structs

from gkm_operator.admission.domains.cluster_view import ClusterView
from gkm_operator.admission.domains.reviewer import ByteBudget, WorkloadReviewer
from gkm_operator.admission.pods.decisions import Caches, PodCacheReview
from gkm_operator.admission.pods.gates import GatedPod, GateReview
from gkm_operator.admission.pods.members import ThinCache, in_order
from gkm_operator.admission.pods.objects import CachePod
from gkm_operator.delivery import ObservedDelivery

PATH = "/pods/caches"
GATES_PATH = "/pods/gates"


def reviewers(
    view: ClusterView, caches: Caches, delivery: ObservedDelivery, config: Config, budget: ByteBudget
) -> Mapping[str, WorkloadReviewer[Any]]:
    """Return the reviewer of pods that name caches, for its URL path.

    deploy/components/pod-caches/webhooks.yaml has the same path.
    """
    decision = PodCacheReview(caches, config.network, config.fabric.cache_labels, lambda: delivery.kind)
    return {PATH: WorkloadReviewer("", "Pod", CachePod, lambda _view: decision, view, budget, lenient=True)}


def gate_reviewers(view: ClusterView, config: Config, budget: ByteBudget) -> Mapping[str, WorkloadReviewer[Any]]:
    """Return the reviewer that adds the scheduling gate to a Run's pods, for its URL path.

    It needs no watch, because the controllers know the plans.
    """
    decision = GateReview(config)
    return {GATES_PATH: WorkloadReviewer("", "Pod", GatedPod, lambda _view: decision, view, budget, lenient=True)}


class NamespaceMetadata(Struct, frozen=True, gc=False):
    """The labels of a Namespace; None if it has no labels."""

    labels: dict[str, str] | None = None


class ThinNamespace(Struct, frozen=True):
    """A Namespace as the webhook's watch holds it; `default` is the name of its default cache, "" if it has none."""

    metadata: NamespaceMetadata
    default: str = ""

    def __post_init__(self) -> None:
        structs.force_setattr(self, "default", (self.metadata.labels or {}).get(DEFAULT_CACHE, ""))
        structs.force_setattr(self, "metadata", NamespaceMetadata())


CACHES, CLUSTER_CACHES = GKMCACHES.of(ThinCache), CLUSTERGKMCACHES.of(ThinCache)
NAMESPACES: Resource[ThinNamespace] = Resource(
    "v1", "Namespace", "namespaces", namespaced=False, type=ThinNamespace, metadata_only=True
)


_MAX_MEMBERS: Final = 256
"""Limit of members of a family that one review looks at; a user can create any number."""


class ObservedCaches:
    """Returns facts about caches (decisions.Caches) from watches of caches and Namespaces."""

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
