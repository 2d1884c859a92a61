"""The view of one review: what the watches show, and what it reads of the API server within the review's time."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from gkm.api.computedomains import CHANNEL_CLASS, ComputeDomain
from gkm.api.domain_capacity import DomainCapacity
from gkm.api.grove import PodCliqueSet
from gkm.api.pod_specs import PodClaim
from gkm.kube.resources import CLAIM_TEMPLATES, CLAIMS, Resource

from gkm_operator.admission.domains.cluster_view import ClusterView
from gkm_operator.admission.domains.thin_objects import SETS
from gkm_operator.admission.domains.view import TooManyClaims, ViewUnavailable
from gkm_operator.mnnvl.gpu_requests import DeviceClasses

T = TypeVar("T")

REVIEW_SECONDS = 3.0
"""For all that one review waits for. The API server waits five seconds for the review of a pod, ten for others."""
MAX_CLAIMS = 64
"""ResourceClaims and ResourceClaimTemplates that one review reads; a pod has a handful."""
CLAIM_SECONDS = 60.0
"""How long the device classes of a claim or template are remembered. Both are immutable, but may be made anew."""
SET_SECONDS = 1.0
"""The same for a set that the watch has not shown: all its cliques are created within a moment."""

_Key = tuple[Resource[Any], str, str, float]


class ReviewView:
    """`view.View` of one review, for one thread."""

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster
        self._until = cluster.clock() + REVIEW_SECONDS
        self._claims: set[tuple[Resource[Any], str]] = set()
        self._found: dict[_Key, Any] = {}
        self._failed: dict[_Key, str] = {}

    @property
    def grove_manages_domains(self) -> bool | None:
        """See View."""
        return self._cluster.grove_manages_domains

    @property
    def capacity(self) -> DomainCapacity | None:
        """See View."""
        return self._cluster.capacity

    def pod_clique_set(self, namespace: str, name: str, uid: str = "", *, again: bool = False) -> PodCliqueSet | None:
        """See View."""
        observed = None if again else self._cluster.pod_clique_set(namespace, name)
        is_large = observed is not None and bool(observed.metadata.oversized)
        if observed is not None and uid in ("", observed.metadata.uid) and not is_large:
            return observed
        # What was read of a large one before may be older than what the watch shows.
        return self.object(SETS, namespace, name, 0.0 if again or is_large else SET_SECONDS)

    def domains_of(self, pod_clique_set: PodCliqueSet) -> Sequence[ComputeDomain]:
        """See View."""
        return self._cluster.domains_of(pod_clique_set)

    def compute_domain(self, namespace: str, name: str) -> ComputeDomain | None:
        """See View."""
        return self._cluster.compute_domain(namespace, name)

    def device_classes(self, namespace: str, *, strict: bool = False) -> DeviceClasses:
        """See View."""

        def classes(claim: PodClaim) -> Iterable[str]:
            template, name = claim.resource_claim_template_name, claim.resource_claim_name
            if template and self._cluster.is_channel(namespace, template):
                return (CHANNEL_CLASS,)
            if template:
                found = self._claim(CLAIM_TEMPLATES, namespace, template, strict=strict)
                return tuple(found.device_classes()) if found else ()
            if name:
                claimed = self._claim(CLAIMS, namespace, name, strict=strict)
                return tuple(claimed.device_classes()) if claimed else ()
            return ()

        return classes

    def _claim(self, resource: Resource[T], namespace: str, name: str, *, strict: bool) -> T | None:
        self._claims.add((resource, name))
        if len(self._claims) > MAX_CLAIMS:
            raise TooManyClaims(
                f"more than {MAX_CLAIMS} ResourceClaims and ResourceClaimTemplates show whether it requests GPUs; use "
                "fewer"
            )
        found = self.object(resource, namespace, name, CLAIM_SECONDS)
        if found is None and strict:
            what = "claim template" if resource is CLAIM_TEMPLATES else "ResourceClaim"
            raise ViewUnavailable(f"{what} {name[:253]} does not exist yet")
        return found

    def object(self, resource: Resource[T], namespace: str, name: str, seconds: float) -> T | None:
        """See View. A review reads an object once: it gets the same answer again, a failure too."""
        key = (resource, namespace, name, seconds)
        if key in self._failed:
            raise ViewUnavailable(self._failed[key])
        if key not in self._found:
            try:
                self._found[key] = self._read(resource, namespace, name, seconds)
            except ViewUnavailable as error:
                self._failed[key] = str(error)
                raise
        found: T | None = self._found[key]
        return found

    def _read(self, resource: Resource[T], namespace: str, name: str, seconds: float) -> T | None:
        remembered = self._cluster.reads.remembered(resource, namespace, name, seconds)
        if remembered is not None:
            return remembered
        remaining = self._until - self._cluster.clock()
        if remaining <= 0.0:
            raise ViewUnavailable("the API server takes too long to show all claims")
        return self._cluster.reads.get(resource, namespace, name, remaining)
