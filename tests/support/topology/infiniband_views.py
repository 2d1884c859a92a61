"""A small InfiniBand network as surveys and agents report it, and what the provider finds in it."""

from collections.abc import Container

from gkm.topology.fabrics.network import FabricDiscovery
from gkm.topology.providers import ClusterNode, Event
from gkm_operator.hypernodes.providers.polling import Known
from gkm_operator.hypernodes.providers.view import AgentReport, LiveView
from support.topology.infiniband_networks import Rails, adapter_guid, cabling, topology_file
from support.topology.observed import ports

NETWORK = Rails(groups=2, hosts_each=3, rails=2, spines=2)
TEXT = topology_file(cabling(NETWORK))
NODES = {f"node-{number:03}": position for number, position in enumerate(NETWORK.hosts)}
BY_GROUP = [sorted(name for name in NODES if NODES[name][2] == group) for group in range(2)]


def cluster(*observed: AgentReport) -> list[ClusterNode | AgentReport]:
    """The nodes with the GUIDs of their ports, and what else agents report."""
    guids = [
        ports(name, *(adapter_guid(pod, group, number, rail) for rail in range(NETWORK.rails)))
        for name, (_, pod, group, number) in NODES.items()
    ]
    return [*map(ClusterNode, NODES), *guids, *observed]


def known(*surveys: AgentReport, existing: Container[str] = ()) -> Known:
    view = LiveView()
    view.publish(cluster(*surveys))
    return Known(view, existing)


def groups(found: FabricDiscovery | Event) -> list[list[str]]:
    """The nodes of each leaf group."""
    return sorted(sorted(member.name for member in one.members) for one in found.hypernodes if one.tier_name == "leaf")
