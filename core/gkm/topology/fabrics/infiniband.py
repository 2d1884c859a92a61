"""The provider `infiniband`: topology files of ibnetdiscover and NodeFabrics as HyperNodes. Pure."""

from collections.abc import Collection, Container, Iterable
from dataclasses import replace

from gkm.api.fabrics import NodeFabric
from gkm.topology.fabrics import guid_join, ibnetdiscover, leaf_groups
from gkm.topology.fabrics.counted import EVERY_CABLE, Counted
from gkm.topology.fabrics.network import FabricDiscovery
from gkm.topology.fabrics.subnet import Subnet


def discover(
    surveys: Iterable[bytes], fabrics: Iterable[NodeFabric], nodes: Collection[str], existing: Container[str] = ()
) -> FabricDiscovery:
    """Return the HyperNodes of `nodes` from topology files of ibnetdiscover; `existing` are the names used before.

    Several files of one subnet are read as one. Subnets that share hosts, such as the planes of one fabric, form common
    groups. A file that cannot be read is a fault; the others are used.

    Raises:
        TooIrregular: as from_subnets.
    """
    subnets: list[Subnet] = []
    faults = []
    for text in surveys:
        try:
            subnets.append(ibnetdiscover.parse(text))
        except ibnetdiscover.NotASurvey as error:
            faults.append(f"a topology file is ignored: {error}")
    return from_subnets(subnets, fabrics, nodes, existing, faults=tuple(sorted(faults)))


def from_subnets(
    subnets: Iterable[Subnet],
    fabrics: Iterable[NodeFabric],
    nodes: Collection[str],
    existing: Container[str] = (),
    *,
    faults: tuple[str, ...] = (),
    counted: Counted = EVERY_CABLE,
) -> FabricDiscovery:
    """Return the HyperNodes of `nodes` from subnets of any source, such as UFM; only `counted` cables are used.

    Raises:
        TooIrregular: the subnets together have no groups that can be found in bounded time.
    """
    found = leaf_groups.discover(guid_join.join(subnets, fabrics, nodes, counted), nodes, existing)
    return replace(found, faults=(*faults, *found.faults))
