"""The cluster as reviews see it: watches for all of them, and the objects that one review reads within its time.

The kinds may be missing, or come later: their watches try again with backoff (gkm.kube.reflector), and the rest of the
process does not wait for them. PodCliqueSets and ComputeDomains are reduced when they are decoded, equal values shared:
a cluster has ten thousand of them, and a review reads the annotations, the groups and the GPU requests.

A slow API server must not occupy the threads that review; a namespace must not occupy the threads of others
(docs/decisions/0006). So single objects are read a bounded number at a time, each for all who need it, and remembered.
An absence is never remembered: the object may be created at any moment, and a decision without it would last.

Must never write to the API.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from sys import intern
from typing import Any, TypeVar

import msgspec
from gkm.api import computedomains, domain_capacity, grove
from gkm.api.computedomains import CHANNEL_CLASS, ComputeDomain, ComputeDomainStatus
from gkm.api.domain_capacity import DomainCapacity, DomainsConfigMap
from gkm.api.grove import CliqueSpec, CliqueTemplate, PodCliqueSet, SetSpec, SetTemplate
from gkm.api.meta import FALSE, TRUE, UNKNOWN
from gkm.api.mnnvl_metadata import DOMAIN_LABEL, MNNVL_GROUP, REPLICA_INDEX, WRITER_LABEL, MnnvlMetadata
from gkm.api.pod_specs import Container, ContainerResources, PodClaim, PodSpec, Quantities
from gkm.hoststate.logs import fields
from gkm.hoststate.lru import LRUCache
from gkm.kube.api import Api, Key, ListSelector
from gkm.kube.errors import ApiError
from gkm.kube.index import Index
from gkm.kube.memory import MAX_HELD_BYTES, held_bytes
from gkm.kube.reflector import Reflector
from gkm.kube.resources import CLAIM_TEMPLATES, CLAIMS, Resource
from msgspec import Struct, structs

from gkm_operator.admission.singleflight import Overloaded, SingleFlight
from gkm_operator.mnnvl import dialect
from gkm_operator.mnnvl.gpu_requests import DeviceClasses

S = TypeVar("S", bound=Struct)
_DEDUPLICATED: LRUCache[bytes, Any] = LRUCache(1024)
_NO_STATUS = ComputeDomainStatus()
_DOMAIN_LABELS = (DOMAIN_LABEL, MNNVL_GROUP, REPLICA_INDEX, WRITER_LABEL)

T = TypeVar("T")

READ_SECONDS = 2.0
"""Seconds for reading one object; all reads of a review together have REVIEW_SECONDS."""
THREADS, WAITING = 8, 32
MAX_OBJECTS = 4096
MAX_REMEMBERED_BYTES = 16 << 10
"""Limit of bytes of one cached object; all cached objects take 64 MiB at most."""

_ObjectKey = tuple[str, str, str]

_LOG = logging.getLogger(__name__)

REVIEW_SECONDS = 3.0
"""Seconds for all that one review waits for. The API server waits five seconds for a pod's review, ten for others."""
MAX_CLAIMS = 64
"""Limit of ResourceClaims and ResourceClaimTemplates that one review reads; a pod has a handful."""
CLAIM_SECONDS = 60.0
"""Seconds for which the device classes of a claim or template are cached. Both are immutable, but may be recreated."""
SET_SECONDS = 1.0
"""Seconds for which a PodCliqueSet is cached that the watch has not shown: its cliques are created within a moment."""

_ReadKey = tuple[Resource[Any], str, str, float]


class ViewUnavailable(Exception):
    """The cluster cannot be read now for a review; the message tells why, and a retry can succeed."""


class TooManyClaims(ViewUnavailable):
    """The reviewed object names more claims than a review may read; the message says what to do. A retry is useless."""


class ThinSet(PodCliqueSet, frozen=True):
    """A PodCliqueSet as the webhook's watch holds it in memory.

    A set that is not enrolled has no template, because its annotations are immutable.
    """

    def __post_init__(self) -> None:
        metadata = self.metadata
        template = SetTemplate()
        if dialect.enrolls(self):
            cliques = tuple(_thin_clique(clique) for clique in self.cliques)
            template = structs.replace(self.spec.template, cliques=cliques)
        structs.force_setattr(self, "metadata", _identity(metadata, labels=None, annotations=metadata.annotations))
        structs.force_setattr(self, "spec", SetSpec(self.spec.replicas, _shared(template)))


class ThinDomain(ComputeDomain, frozen=True):
    """A ComputeDomain without its status. `owner` is the uid of its controller; "" without a controller."""

    owner: str = ""

    def __post_init__(self) -> None:
        metadata, controller = self.metadata, self.metadata.controller
        labels = {key: intern(value) for key in _DOMAIN_LABELS if (value := metadata.label(key))}
        owner = controller.uid if controller is not None and controller.possible else self.owner
        structs.force_setattr(self, "owner", intern(owner))
        structs.force_setattr(self, "metadata", _identity(metadata, labels=labels or None, annotations=None))
        structs.force_setattr(self, "status", _NO_STATUS)


SETS: Resource[ThinSet] = Resource(grove.API_VERSION, "PodCliqueSet", "podcliquesets", namespaced=True, type=ThinSet)

DOMAINS: Resource[ThinDomain] = Resource(
    computedomains.API_VERSION, computedomains.KIND, "computedomains", namespaced=True, type=ThinDomain
)

CONFIG_MAPS: Resource[DomainsConfigMap] = Resource(
    "v1",
    "ConfigMap",
    "configmaps",
    namespaced=True,
    type=DomainsConfigMap,
    unbounded="the controllers write this one ConfigMap, and parse_capacity limits its text",
)


def _identity(
    metadata: MnnvlMetadata, *, labels: dict[str, str] | None, annotations: dict[str, str] | None
) -> MnnvlMetadata:
    return MnnvlMetadata(
        name=metadata.name,
        namespace=intern(metadata.namespace),
        uid=metadata.uid,
        creation_timestamp=intern(metadata.creation_timestamp),
        deletion_timestamp=metadata.deletion_timestamp,
        labels=labels,
        annotations=annotations,
        oversized=metadata.oversized,
    )


def _thin_clique(clique: CliqueTemplate) -> CliqueTemplate:
    spec = clique.spec.pod_spec
    thin = PodSpec(_thin_containers(spec.containers), _thin_containers(spec.init_containers), spec.resource_claims)
    reduced = CliqueSpec(clique.spec.replicas, _shared(thin))
    return CliqueTemplate(clique.name, clique.annotations, reduced, clique.resource_sharing)


def _thin_containers(containers: tuple[Container, ...] | None) -> tuple[Container, ...] | None:
    found = tuple(
        Container("", ContainerResources(_extended(resources.requests), _extended(resources.limits), resources.claims))
        for container in containers or ()
        if (resources := container.resources) is not None
    )
    return found or None


def _extended(quantities: Quantities | None) -> Quantities | None:
    """Return the extended resources: their names have a slash, as have the GPU resources."""
    return {name: quantity for name, quantity in (quantities or {}).items() if "/" in name} or None


def _shared(value: S) -> S:
    """Return an equal value, stored once for all equal ones: sets are made from few templates."""
    if held_bytes(value) > MAX_HELD_BYTES:
        return value
    text = msgspec.json.encode(value)
    shared: S = _DEDUPLICATED.get_or_create(text, lambda: value)
    return shared


class SingleReads:
    """Reads single objects from the API server and caches them by kind, namespace and name. Thread-safe."""

    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._flights: SingleFlight[Any] = SingleFlight(THREADS, READ_SECONDS, WAITING)
        self._found: LRUCache[_ObjectKey, tuple[float, Any]] = LRUCache(MAX_OBJECTS)

    def remembered(self, resource: Resource[T], namespace: str, name: str, seconds: float) -> T | None:
        """Return an object from the memory if it was read within the last `seconds`; None if it was not."""
        found = self._found.get((resource.plural, namespace, name))
        if found is None or self._clock() >= found[0] + seconds:
            return None
        value: T = found[1]
        return value

    def get(self, resource: Resource[T], namespace: str, name: str, timeout: float = READ_SECONDS) -> T | None:
        """Read an object from the API server and cache it; return None if it does not exist.

        Raises:
            ViewUnavailable: the API server does not answer within `timeout`, or too many reads are under way.
        """
        key, started = (resource.plural, namespace, name), self._clock()
        try:
            value: T | None = self._flights.run(
                key, (namespace,), lambda: self._api.find(resource, name, namespace), timeout
            )
        except (ApiError, Overloaded) as error:
            cause = "the API server does not answer in time" if isinstance(error, Overloaded) else str(error)
            raise ViewUnavailable(f"{resource.kind} {name[:253]} cannot be read: {cause}") from error
        if value is not None and held_bytes(value) <= MAX_REMEMBERED_BYTES:
            self._found.put(key, (started, value))
        return value


class ClusterView:
    """The watched state of the cluster that all reviews share; `ReviewView` adds reads for one review. Never waits."""

    def __init__(self, api: Api, reads: Api, namespace: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Create the watches. `reads` is an API client with short timeouts.

        `namespace` has the ConfigMap gkm-domains.
        """
        self.clock = clock
        self.reads = SingleReads(reads, clock)
        self._by_owner: Index[Key, ThinDomain] = Index(_owners, lambda domain: domain.metadata.name)
        self._sets = Reflector(api, SETS)
        self._domains = Reflector(api, DOMAINS, self._by_owner.change)
        selector = ListSelector(namespace, fields=f"metadata.name={domain_capacity.CONFIG_MAP}")
        self._config = Reflector(api, CONFIG_MAPS, self._read_config, selector=selector)
        self.capacity: DomainCapacity | None = None
        """The free nodes for ComputeDomains; None while they are unknown."""
        self.grove_manages_domains: bool | None = None
        """Whether the installed Grove operator writes ComputeDomains; None while the ConfigMap does not say so."""

    def watches(self) -> tuple[Reflector[Any], ...]:
        """Return the watches of PodCliqueSets, ComputeDomains and configuration, for the caller to start."""
        return self._sets, self._domains, self._config

    def require_manager(self) -> None:
        """Raise ViewUnavailable while it is not known whether Grove manages ComputeDomains."""
        if not self._config.synced.is_set():
            raise ViewUnavailable("the ConfigMap gkm-domains is not read yet")
        if self.grove_manages_domains is None:
            raise ViewUnavailable(
                "the ConfigMap gkm-domains does not say whether Grove manages ComputeDomains; the controllers write it "
                "after their start. If this lasts, see the log of gkm-controllers"
            )

    def pod_clique_set(self, namespace: str, name: str) -> PodCliqueSet | None:
        """Return a PodCliqueSet as its watch last showed it; None if the watch does not have it."""
        return self._sets.get(name, namespace)

    def domains_of(self, pod_clique_set: PodCliqueSet) -> Sequence[ComputeDomain]:
        """Return the ComputeDomains that a PodCliqueSet owns; raise ViewUnavailable until the watch has listed."""
        self._require_domains()
        metadata = pod_clique_set.metadata
        return self._by_owner.get((metadata.namespace, metadata.uid))

    def compute_domain(self, namespace: str, name: str) -> ComputeDomain | None:
        """Return a ComputeDomain, None if it does not exist; raise ViewUnavailable until the watch has listed."""
        self._require_domains()
        return self._domains.get(name, namespace)

    def is_channel(self, namespace: str, template: str) -> bool:
        """Return whether a claim template belongs to the ComputeDomain of the same name, so that no read is needed."""
        found = self._domains.get(template, namespace)
        return found is not None and found.template == template

    def _require_domains(self) -> None:
        if not self._domains.synced.is_set():
            raise ViewUnavailable("the ComputeDomains of the cluster are not read yet")

    def _read_config(self, _old: DomainsConfigMap | None, new: DomainsConfigMap | None) -> None:
        data = new.data if new else {}
        self.capacity = _parsed(domain_capacity.parse_capacity, data, domain_capacity.CAPACITY_KEY)
        conditions = _parsed(domain_capacity.parse_conditions, data, domain_capacity.CONDITIONS_KEY) or ()
        by_type = {condition.type: condition.status for condition in conditions}
        manages = by_type.get(domain_capacity.GROVE_MANAGES_DOMAINS, UNKNOWN)
        self.grove_manages_domains = {TRUE: True, FALSE: False}.get(manages)


def _owners(domain: ThinDomain) -> tuple[Key, ...]:
    # A uid alone is no secret: an object of another namespace may name it as its owner.
    return ((domain.metadata.namespace, domain.owner),) if domain.owner else ()


def _parsed(parse: Callable[[str], T], data: dict[str, str], key: str) -> T | None:
    if key not in data:
        return None
    try:
        return parse(data[key])
    except ValueError as error:
        _LOG.warning("invalid value in ConfigMap gkm-domains ignored", extra=fields(key=key, why=str(error)[:200]))
        return None


class ReviewView:
    """Reads the cluster for one review; only one thread may use it. `cluster` is what all reviews share."""

    def __init__(self, cluster: ClusterView) -> None:
        self.cluster = cluster
        self._until = cluster.clock() + REVIEW_SECONDS
        self._claims: set[tuple[Resource[Any], str]] = set()
        self._found: dict[_ReadKey, Any] = {}
        self._failed: dict[_ReadKey, str] = {}

    def pod_clique_set(self, namespace: str, name: str, uid: str = "", *, again: bool = False) -> PodCliqueSet | None:
        """Return a PodCliqueSet from the watch; None if it does not exist.

        It is read from the API server if the watch lacks it, it is large, has another uid, or `again` is set.

        Raises:
            ViewUnavailable: the API server does not answer.
        """
        observed = None if again else self.cluster.pod_clique_set(namespace, name)
        is_large = observed is not None and bool(observed.metadata.oversized)
        if observed is not None and uid in ("", observed.metadata.uid) and not is_large:
            return observed
        # An earlier read of a large set may be older than the watch.
        return self.object(SETS, namespace, name, 0.0 if again or is_large else SET_SECONDS)

    def device_classes(self, namespace: str, *, strict: bool = False) -> DeviceClasses:
        """Return a function that returns the device classes of a claim; use it for one review only.

        It raises ViewUnavailable if the API server does not answer, TooManyClaims if it was called for too many claims.
        A claim that does not exist has no classes, and also raises ViewUnavailable if `strict`.
        """

        def classes(claim: PodClaim) -> Iterable[str]:
            template, name = claim.resource_claim_template_name, claim.resource_claim_name
            if template and self.cluster.is_channel(namespace, template):
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
        """Return an object at most `seconds` old; None if it does not exist.

        A review reads it once: a second call gets the same result.

        Raises:
            ViewUnavailable: the API server does not answer.
        """
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
        remembered = self.cluster.reads.remembered(resource, namespace, name, seconds)
        if remembered is not None:
            return remembered
        remaining = self._until - self.cluster.clock()
        if remaining <= 0.0:
            raise ViewUnavailable("the API server takes too long to show all claims")
        return self.cluster.reads.get(resource, namespace, name, remaining)
