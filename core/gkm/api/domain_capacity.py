"""The ConfigMap `gkm-domains`: the controllers write it, admission reads it.

Key `capacity`: whole free nodes by clique and GPU product, as JSON. Key `conditions`: a JSON list of conditions about
the whole feature. A whole node is free if no pod on it requests GPUs and no ComputeDomain holds its IMEX channel.
"""

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from gkm.api.meta import Condition, Count

CONFIG_MAP = "gkm-domains"
CAPACITY_KEY, CONDITIONS_KEY = "capacity", "conditions"

DOMAINS_AVAILABLE = "DomainsAvailable"
"""Condition: the kind ComputeDomain is installed."""
GROVE_MANAGES_DOMAINS = "GroveManagesDomains"
"""Condition: True if the Grove operator may write ComputeDomains; GKM then leaves PodCliqueSets to it."""

MAX_CLIQUES, MAX_POOLS = 4096, 16
"""4096 cliques of 18 nodes are 73,000 nodes, and half of the 1 MiB that a ConfigMap may hold."""
MAX_BYTES = 1 << 20

_Name = Annotated[str, Meta(max_length=253)]
T = TypeVar("T")


class NodePool(Struct, frozen=True, rename="camel", gc=False):
    """Numbers of nodes with the same GPU product and the same number of GPUs: all, and the whole free ones."""

    product: _Name
    """The GPU product, as a label of the node names it; "" without a label."""
    gpus_per_node: Count
    nodes: Count
    free: Count
    """Whole free nodes."""


class CliqueCapacity(Struct, frozen=True):
    """The numbers of nodes in one NVLink clique, by pool."""

    name: _Name
    pools: Annotated[tuple[NodePool, ...], Meta(max_length=MAX_POOLS)]
    """Pools with different products or numbers of GPUs. An administrator should have one product in a clique."""

    @property
    def nodes(self) -> int:
        """Return the number of nodes in the clique."""
        return sum(pool.nodes for pool in self.pools)

    @property
    def free(self) -> int:
        """Return the number of whole free nodes in the clique."""
        return sum(pool.free for pool in self.pools)


class DomainCapacity(Struct, frozen=True, rename="camel"):
    """The capacity of a cluster for ComputeDomains: nodes by NVLink clique, and nodes without a fabric."""

    cliques: Annotated[tuple[CliqueCapacity, ...], Meta(max_length=MAX_CLIQUES)] = ()
    """NVLink cliques, the ones with the most free nodes first, at most MAX_CLIQUES."""
    without_fabric: Annotated[tuple[NodePool, ...], Meta(max_length=MAX_POOLS)] = ()
    """Nodes with GPUs and without a clique: a domain would span them without NVLink."""


class DomainsConfigMap(Struct, frozen=True):
    """The ConfigMap `gkm-domains`, reduced to its data."""

    data: dict[str, str] = field(default_factory=dict)


def parse_capacity(text: str) -> DomainCapacity:
    """Return the capacity for ComputeDomains in a JSON text.

    Raises:
        ValueError: the text is not a capacity, or too long.
    """
    return _parse(text, DomainCapacity)


def parse_conditions(text: str) -> tuple[Condition, ...]:
    """Return the conditions in a JSON text; raises as `parse_capacity` does."""
    return _parse(text, tuple[Condition, ...])


def _parse(text: str, kind: type[T]) -> T:
    if len(text) > MAX_BYTES:
        raise ValueError(f"the JSON has more than {MAX_BYTES} characters")
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
