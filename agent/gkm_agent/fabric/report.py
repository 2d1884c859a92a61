"""The report that an agent publishes about its node's fabric, and the Protocol for its sink."""

from dataclasses import dataclass
from typing import Protocol

from gkm.api.fabrics import NodeFabricStatus, NVLink

from gkm_agent.fabric.labels import WantedLabels
from gkm_agent.fabric.lldp import Links
from gkm_agent.fabric.nvlink import FabricVerdict
from gkm_agent.fabric.sysfs import Ports, active
from gkm_agent.interfaces import Sink

MAX_PROBLEMS = 16
_MAX_PROBLEM_LENGTH = 256


@dataclass(frozen=True, slots=True)
class FabricReport:
    """The NodeFabric status and the Node labels that the agent wants to publish."""

    status: NodeFabricStatus
    labels: WantedLabels


class FabricSink(Sink[FabricReport], Protocol):
    """Publishes NodeFabric and the Node labels, and stores InfiniBand surveys."""

    def survey(self, packed: bytes) -> None:
        """Store the compressed output of ibnetdiscover if it has changed.

        Raises:
            NotWritten: the output is not stored.
        """


def status_of(nvlink: NVLink | None, verdict: FabricVerdict | None, ports: Ports, links: Links) -> NodeFabricStatus:
    """Return the NodeFabric status without its time; `verdict` is None until the first reading has settled."""
    problems = [*ports.problems, *links.problems]
    if len(problems) > MAX_PROBLEMS:
        problems = [*problems[: MAX_PROBLEMS - 1], f"and {len(problems) - MAX_PROBLEMS + 1} more"]
    return NodeFabricStatus(
        domain=verdict.domain if verdict else "",
        health=verdict.health.value if verdict else None,
        message=verdict.cause[:512] if verdict else "",
        infiniband_ports=active(list(ports.ports)),
        nvlink=nvlink,
        infiniband=list(ports.ports),
        ethernet=list(links.links),
        problems=[problem[:_MAX_PROBLEM_LENGTH] for problem in problems],
    )
