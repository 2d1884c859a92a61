"""Which nodes count as live: the Node exists and is Ready, and its agent is Ready. No I/O."""

from enum import Enum

from gkm.api.installation import AGENT
from gkm.api.mnnvl_metadata import OBJECT_NAME
from gkm.kube.api import ListSelector
from gkm.kube.index import Index
from gkm.kube.resources import Resource
from msgspec import Struct

from gkm_operator.pods import WatchedPod


class Liveness(Enum):
    """The liveness of a node; the values are texts for messages."""

    GONE = "the Node does not exist"
    ANSWERS = "the node is live"
    NODE_NOT_READY = "the Node is not ready"
    AGENT_NOT_READY = "its agent is not ready"


class NodeMeta(Struct, frozen=True, gc=False):
    """The metadata of a DaemonSet."""

    name: str


class AgentDaemonSet(Struct, frozen=True, gc=False):
    """The agents' DaemonSet; its existence means that agents run as its Pods."""

    metadata: NodeMeta


AGENT_SETS = Resource("apps/v1", "DaemonSet", "daemonsets", namespaced=True, type=AgentDaemonSet)


def agents(namespace: str) -> ListSelector:
    """Return the selector of our agents among all pods (deploy/chart/gkm/templates/agent.yaml)."""
    return ListSelector(namespace, labels=f"{OBJECT_NAME}={AGENT}")


def agent_set(namespace: str) -> ListSelector:
    """Return the selector of our DaemonSet among AGENT_SETS."""
    return ListSelector(namespace, fields=f"metadata.name={AGENT}")


class LivenessTracker:
    """The Nodes and their agents. Not thread-safe: callers lock around all that depends on the result."""

    def __init__(self) -> None:
        self.nodes: dict[str, bool] = {}
        """Whether a Node is Ready; a name without an entry is a Node that does not exist."""
        self.agents = Index[str, WatchedPod](lambda agent: (agent.node,), lambda agent: agent.metadata.name)
        self.deployed = False
        """Whether the agents' DaemonSet exists; without it the Node alone decides."""

    def liveness(self, name: str) -> Liveness:
        """Return the liveness of a node."""
        ready = self.nodes.get(name)
        if ready is None:
            return Liveness.GONE
        if not ready:
            return Liveness.NODE_NOT_READY
        if self.deployed and not any(agent.ready for agent in self.agents.get(name)):
            return Liveness.AGENT_NOT_READY
        return Liveness.ANSWERS
