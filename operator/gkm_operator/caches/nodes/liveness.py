"""Which nodes count as live: the Node exists and is Ready, and its agent is Ready. No I/O."""

from enum import Enum

from gkm.kube.api import ListSelector
from gkm.kube.index import Index
from gkm.kube.resources import Resource
from msgspec import Struct, field, structs

AGENT = "gkm-agent"
"""The name of the agents' DaemonSet, and the label app.kubernetes.io/name of its Pods (deploy/base/agent.yaml)."""


class Liveness(Enum):
    """The liveness of a node; the values are texts for messages."""

    GONE = "the Node does not exist"
    ANSWERS = "the node is live"
    NODE_NOT_READY = "the Node is not ready"
    AGENT_NOT_READY = "its agent is not ready"


class ReadyCondition(Struct, frozen=True, gc=False):
    """A condition of a Node or of a Pod."""

    type: str
    status: str


_READY = ReadyCondition("Ready", "True")
_ONLY_READY = (_READY,)


class ReadyStatus(Struct, frozen=True, gc=False):
    """The status of a Node or of a Pod, reduced to whether it is Ready to save memory for 10,000 of them."""

    conditions: tuple[ReadyCondition, ...] = ()

    def __post_init__(self) -> None:
        structs.force_setattr(self, "conditions", _ONLY_READY if _READY in self.conditions else ())


class NodeMeta(Struct, frozen=True, gc=False):
    """The metadata of a DaemonSet."""

    name: str


class AgentMeta(Struct, frozen=True, rename="camel", gc=False):
    """The metadata of an agent's Pod; it has a deletion timestamp while it is being deleted."""

    name: str
    deletion_timestamp: str | None = None


class AgentSpec(Struct, frozen=True, rename="camel", gc=False):
    """The node of a Pod; empty until it is scheduled."""

    node_name: str = ""


class AgentPod(Struct, frozen=True, gc=False):
    """A Pod of the agents' DaemonSet."""

    metadata: AgentMeta
    spec: AgentSpec = field(default_factory=AgentSpec)
    status: ReadyStatus = field(default_factory=ReadyStatus)

    @property
    def ready(self) -> bool:
        """Return whether it is Ready; a Pod that is being deleted is not, whatever its condition."""
        return bool(self.status.conditions) and self.metadata.deletion_timestamp is None


class AgentDaemonSet(Struct, frozen=True, gc=False):
    """The agents' DaemonSet; its existence means that agents run as its Pods."""

    metadata: NodeMeta


AGENTS = Resource("v1", "Pod", "pods", namespaced=True, type=AgentPod)
AGENT_SETS = Resource("apps/v1", "DaemonSet", "daemonsets", namespaced=True, type=AgentDaemonSet)


def agents(namespace: str) -> ListSelector:
    """Return the selector of our agents among AGENTS."""
    return ListSelector(namespace, labels=f"app.kubernetes.io/name={AGENT}")


def agent_set(namespace: str) -> ListSelector:
    """Return the selector of our DaemonSet among AGENT_SETS."""
    return ListSelector(namespace, fields=f"metadata.name={AGENT}")


class LivenessTracker:
    """The Nodes and their agents. Not thread-safe: callers lock around all that depends on the result."""

    def __init__(self) -> None:
        self.nodes: dict[str, bool] = {}
        """Whether a Node is Ready; a name without an entry is a Node that does not exist."""
        self.agents: Index[str, AgentPod] = Index(
            lambda agent: (agent.spec.node_name,), lambda agent: agent.metadata.name
        )
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
