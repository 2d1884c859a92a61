"""Subnets of InfiniBand and NodeFabrics as HyperNodes. Pure."""

from collections.abc import Collection, Container, Iterable

from gkm.api.fabrics import NodeFabric
from gkm.topology.fabrics import guid_join, leaf_groups
from gkm.topology.fabrics.counted import EVERY_CABLE, Counted
from gkm.topology.fabrics.network import FabricDiscovery
from gkm.topology.fabrics.subnet import Subnet


def from_subnets(
    subnets: Iterable[Subnet],
    fabrics: Iterable[NodeFabric],
    nodes: Collection[str],
    existing: Container[str] = (),
    *,
    counted: Counted = EVERY_CABLE,
) -> FabricDiscovery:
    """Return the HyperNodes of `nodes` from subnets of any source, such as UFM; only `counted` cables are used.

    Raises:
        TooIrregular: the subnets together have no groups that can be found in bounded time.
    """
    return leaf_groups.discover(guid_join.join(subnets, fabrics, nodes, counted), nodes, existing)
