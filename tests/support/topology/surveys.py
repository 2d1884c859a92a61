"""Topology files of ibnetdiscover as HyperNodes, in one step."""

from collections.abc import Collection, Container, Iterable
from dataclasses import replace

from gkm.api.fabrics import NodeFabric
from gkm.topology.fabrics import ibnetdiscover
from gkm.topology.fabrics.infiniband import from_subnets
from gkm.topology.fabrics.network import FabricDiscovery


def discover(
    surveys: Iterable[bytes], fabrics: Iterable[NodeFabric], nodes: Collection[str], existing: Container[str] = ()
) -> FabricDiscovery:
    """Return the HyperNodes of `nodes` in the subnets of these topology files; `existing` are those names before.

    A file that cannot be read is a fault; the others are used.
    """
    subnets = []
    faults = []
    for text in surveys:
        try:
            subnets.append(ibnetdiscover.parse(text))
        except ibnetdiscover.NotASurvey as error:
            faults.append(f"a topology file is ignored: {error}")
    found = from_subnets(subnets, fabrics, nodes, existing)
    return replace(found, faults=(*sorted(faults), *found.faults))
