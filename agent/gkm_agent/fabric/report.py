"""What is said of this node's fabric, from what was read and what is settled. Pure."""

from dataclasses import dataclass

from gkm.api.fabrics import NodeFabricStatus, NVLink

from gkm_agent.fabric.infiniband import active
from gkm_agent.fabric.labels import WantedLabels
from gkm_agent.fabric.lldp import Links
from gkm_agent.fabric.nvlink import FabricVerdict
from gkm_agent.fabric.sysfs import Ports

MAX_PROBLEMS = 16
_LONGEST = 256


@dataclass(frozen=True, slots=True)
class FabricReport:
    """What NodeFabric and the labels of the Node should say."""

    status: NodeFabricStatus
    labels: WantedLabels


def status_of(nvlink: NVLink | None, told: FabricVerdict | None, ports: Ports, links: Links) -> NodeFabricStatus:
    """Return the status, without the moment it was written; `told` is None while nothing is settled."""
    problems = [*ports.problems, *links.problems]
    if len(problems) > MAX_PROBLEMS:
        problems = [*problems[: MAX_PROBLEMS - 1], f"and {len(problems) - MAX_PROBLEMS + 1} more"]
    return NodeFabricStatus(
        domain=told.domain if told else "",
        health=told.health.value if told else None,
        message=told.why[:512] if told else "",
        infiniband_ports=active(list(ports.ports)),
        nvlink=nvlink,
        infiniband=list(ports.ports),
        ethernet=list(links.links),
        problems=[problem[:_LONGEST] for problem in problems],
    )
