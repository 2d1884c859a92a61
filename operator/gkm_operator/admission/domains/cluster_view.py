"""The cluster as all reviews see it: watches of PodCliqueSets, ComputeDomains and the ConfigMap gkm-domains.

The kinds may be missing, or come later: their watches try again with backoff (gkm.kube.reflector), and nothing else in
the process waits for them. Must never write to the API.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from gkm.api import domain_capacity
from gkm.api.computedomains import ComputeDomain
from gkm.api.domain_capacity import DomainCapacity, DomainsConfigMap
from gkm.api.grove import PodCliqueSet
from gkm.api.meta import TRUE
from gkm.hoststate.logs import fields
from gkm.kube.api import Api, Key, ListSelector
from gkm.kube.index import Index
from gkm.kube.reflector import Reflector

from gkm_operator.admission.domains.single_reads import SingleReads
from gkm_operator.admission.domains.thin_objects import CONFIG_MAPS, DOMAINS, SETS, ThinDomain
from gkm_operator.admission.domains.view import ViewUnavailable

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


class ClusterView:
    """What all reviews see; `review_view.ReviewView` is the view of one of them. No method waits for the API server."""

    def __init__(self, api: Api, reads: Api, namespace: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`reads` has short timeouts; `namespace` is that of the ConfigMap."""
        self.clock = clock
        self.reads = SingleReads(reads, clock)
        self._by_owner: Index[Key, ThinDomain] = Index(_owners, lambda domain: domain.metadata.name)
        self._sets = Reflector(api, SETS, lambda _old, _new: None)
        self._domains = Reflector(api, DOMAINS, self._by_owner.change)
        selector = ListSelector(namespace, fields=f"metadata.name={domain_capacity.CONFIG_MAP}")
        self._config = Reflector(api, CONFIG_MAPS, self._read_config, selector=selector)
        self._capacity: DomainCapacity | None = None
        self._grove_manages = False

    def start(self) -> None:
        """Start the watches."""
        for reflector in self._reflectors():
            reflector.start()

    def close(self) -> None:
        """End the watches."""
        for reflector in self._reflectors():
            reflector.close()

    @property
    def grove_manages_domains(self) -> bool | None:
        """See View."""
        return self._grove_manages if self._config.synced.is_set() else None

    @property
    def capacity(self) -> DomainCapacity | None:
        """See View."""
        return self._capacity

    def pod_clique_set(self, namespace: str, name: str) -> PodCliqueSet | None:
        """Return a set as last observed."""
        return self._sets.get(name, namespace)

    def domains_of(self, pod_clique_set: PodCliqueSet) -> Sequence[ComputeDomain]:
        """See View."""
        self._require_domains()
        metadata = pod_clique_set.metadata
        return self._by_owner.get((metadata.namespace, metadata.uid))

    def compute_domain(self, namespace: str, name: str) -> ComputeDomain | None:
        """See View."""
        self._require_domains()
        return self._domains.get(name, namespace)

    def is_channel(self, namespace: str, template: str) -> bool:
        """Return whether a template is that of the ComputeDomain with its name, so that it need not be read."""
        found = self._domains.get(template, namespace)
        return found is not None and found.template == template

    def _require_domains(self) -> None:
        if not self._domains.synced.is_set():
            raise ViewUnavailable("the ComputeDomains of the cluster are not read yet")

    def _read_config(self, _old: DomainsConfigMap | None, new: DomainsConfigMap | None) -> None:
        data = new.data if new else {}
        self._capacity = _parsed(domain_capacity.parse_capacity, data, domain_capacity.CAPACITY_KEY)
        conditions = _parsed(domain_capacity.parse_conditions, data, domain_capacity.CONDITIONS_KEY) or ()
        self._grove_manages = any(
            (condition.type, condition.status) == (domain_capacity.GROVE_MANAGES_DOMAINS, TRUE)
            for condition in conditions
        )

    def _reflectors(self) -> tuple[Reflector[Any], ...]:
        return self._sets, self._domains, self._config


def _owners(domain: ThinDomain) -> tuple[Key, ...]:
    # A uid alone is no secret: an object of another namespace may name it as its owner.
    return ((domain.metadata.namespace, domain.owner),) if domain.owner else ()


def _parsed(parse: Callable[[str], T], data: dict[str, str], key: str) -> T | None:
    if key not in data:
        return None
    try:
        return parse(data[key])
    except ValueError as error:
        _LOG.warning("gkm-domains not read", extra=fields(key=key, why=str(error)[:200]))
        return None
