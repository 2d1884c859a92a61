"""Count whole free nodes by NVLink clique and GPU product, and write the ConfigMap `gkm-domains`.

A whole node is free if it is usable, no ComputeDomain holds its IMEX channel, and no pod on it requests GPUs. The
ConfigMap also has the conditions of the feature. It is written on change, at most every INTERVAL_SECONDS, and
again after REPEAT_SECONDS. Admission reads it for warnings only.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from sys import intern

import msgspec
from gkm.api.domain_capacity import (
    CAPACITY_KEY,
    CONDITIONS_KEY,
    CONFIG_MAP,
    MAX_BYTES,
    MAX_CLIQUES,
    MAX_POOLS,
    CliqueCapacity,
    DomainCapacity,
    NodePool,
)
from gkm.api.meta import Condition
from gkm.api.mnnvl_metadata import NODE_LABEL
from gkm.api.topology_settings import Topology
from gkm.hoststate.pacing import Backoff, Clock
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS
from gkm.kube.workqueue import WorkQueue
from gkm.topology import labels
from gkm.topology.nodes import Node, gpu_count
from msgspec import Struct

from gkm_operator import metrics
from gkm_operator.last_write import LastWrite

_UNHEALTHY = "unhealthy"


class FabricNode(Struct, frozen=True, gc=False):
    """A Node, reduced to the fields that decide whether it is free. `gpus` is the number of its allocatable GPUs.

    None if no device plugin counts them, as with DRA.
    """

    name: str
    clique: str = ""
    """The node's fabric domain, "" if absent."""
    product: str = ""
    """The product name of the node's GPUs, in lower case."""
    gpus: int | None = None
    usable: bool = False
    """Whether it is Ready and schedulable, its fabric is not unhealthy, and its device plugin, if any, offers GPUs."""
    held_by: str = ""
    """The uid of the ComputeDomain that uses the node's IMEX channel."""


def fabric_node(node: Node, settings: Topology) -> FabricNode:
    """Return a Node reduced to the fields of capacity; a node with an invalid label value is not usable."""
    clique = product = ""
    gpus = None if node.gpus is None else 0
    try:
        claims = labels.read(node.labels, settings)
        clique, product = intern(claims.domain), intern(claims.flavor)
        gpus = None if node.gpus is None else gpu_count(node.gpus)
        usable = node.ready and not node.spec.unschedulable and claims.health != _UNHEALTHY and gpus != 0
    except ValueError:
        usable = False
    return FabricNode(node.name, clique, product, gpus, usable, node.labels.get(NODE_LABEL, ""))


MAX_TEXT = MAX_BYTES * 3 // 4
"""Limit of bytes of the text: etcd limits the whole ConfigMap, and the conditions need a part."""

_Pool = tuple[str, int]
_Counts = list[int]


def capacity(nodes: Iterable[FabricNode], is_busy: Callable[[str], bool]) -> DomainCapacity:
    """Return the free nodes by NVLink clique and GPU product; `is_busy` returns whether a pod on a node requests GPUs.

    A node without GPUs and without a fabric domain is left out. A node without a device plugin counts with 0 GPUs: DRA
    assigns them, and no field of the node has their number.
    """
    cliques: defaultdict[str, dict[_Pool, _Counts]] = defaultdict(dict)
    for node in nodes:
        if not node.clique and node.gpus is None:
            continue
        counts = cliques[node.clique].setdefault((node.product, node.gpus or 0), [0, 0])
        counts[0] += 1
        counts[1] += node.usable and not node.held_by and not is_busy(node.name)
    without_fabric = _pools(cliques.pop("", {}))
    found = [CliqueCapacity(name, _pools(pools)) for name, pools in cliques.items()]
    found.sort(key=lambda clique: (-clique.free, clique.name))
    return DomainCapacity(tuple(found[:MAX_CLIQUES]), without_fabric)


def capacity_text(found: DomainCapacity) -> str:
    """Return a capacity as JSON of at most MAX_TEXT bytes; the cliques with the fewest free nodes are omitted."""
    while len(text := msgspec.json.encode(found)) > MAX_TEXT:
        found = DomainCapacity(found.cliques[: len(found.cliques) // 2], found.without_fabric)
    return text.decode()


def _pools(pools: Mapping[_Pool, _Counts]) -> tuple[NodePool, ...]:
    made = [NodePool(product, gpus, *counts) for (product, gpus), counts in pools.items()]
    made.sort(key=lambda pool: (-pool.free, -pool.nodes, pool.product, pool.gpus_per_node))
    return tuple(made[:MAX_POOLS])


NAME = "domain-capacity"
FIELD_MANAGER = "gkm-domains"
INTERVAL_SECONDS = 5.0
REFUSED_SECONDS = 600.0
"""Seconds between two attempts without the right to write, unless a condition changes."""
CALM_SECONDS = 0.5
"""Seconds between a change and the write, so that one write covers several changes."""


class CapacityReport:
    """Writes the ConfigMap `gkm-domains`; `capacity` and `conditions` return its content.

    While `capacity` returns None, the ConfigMap has the conditions only: admission must not take nodes that are not
    listed yet for a cluster without free nodes.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        *,
        capacity: Callable[[], DomainCapacity | None],
        conditions: Callable[[], Sequence[Condition]],
        clock: Clock = time.monotonic,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._capacity = capacity
        self._conditions = conditions
        self._clock = clock
        self._written = LastWrite[dict[str, str]]()
        self._next = clock()
        self.queue: WorkQueue[str] = WorkQueue(
            NAME, self.write, workers=1, backoff=Backoff(1.0, 60.0), observe=metrics.reconcile_recorder(NAME)
        )

    def changed(self) -> None:
        """Schedule a write of the ConfigMap `gkm-domains`."""
        self.queue.add(CONFIG_MAP, max(CALM_SECONDS, self._next - self._clock()))

    def write(self, name: str) -> float | None:
        """Write the ConfigMap `gkm-domains` if its content differs from the last write, or that is REPEAT_SECONDS ago.

        Return the seconds until the next attempt if the right is missing and the feature does not work, else None.

        Raises:
            ApiError: the API server refused the write.
        """
        conditions = msgspec.json.encode(list(self._conditions())).decode()
        found = self._capacity()
        data = {CONDITIONS_KEY: conditions} | ({} if found is None else {CAPACITY_KEY: capacity_text(found)})
        if self._written.is_current(data, self._clock()):
            return None
        self._next = self._clock() + INTERVAL_SECONDS
        meta = {"name": name, "namespace": self._namespace}
        value = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
        try:
            self._api.apply(CONFIGMAPS, value, field_manager=FIELD_MANAGER)
        except ApiError as error:
            if not error.forbidden or found is not None:
                raise
            return REFUSED_SECONDS  # most clusters do not use the feature, and grant no right
        self._written.record(data, self._clock())
        return None
