"""Which nodes answer for what they report: a Node that is there and Ready, with an agent on it that is (no I/O)."""

from enum import Enum

from gkm.kube.api import ListSelector
from gkm.kube.index import Index
from gkm.kube.resources import Resource
from msgspec import Struct, field, structs

AGENT = "gkm-agent"
"""The DaemonSet of the agents, and the label app.kubernetes.io/name of its Pods (deploy/base/agent.yaml)."""


class Liveness(Enum):
    """What is known of a node; the value is what people are told."""

    GONE = "there is no such Node"
    ANSWERS = "it answers"
    NODE_NOT_READY = "the Node is not ready"
    AGENT_NOT_READY = "its agent is not ready"


class ReadyCondition(Struct, frozen=True, gc=False):
    """A condition of a Node or of a Pod."""

    type: str
    status: str


_READY = ReadyCondition("Ready", "True")
_ONLY_READY = (_READY,)


class ReadyStatus(Struct, frozen=True, gc=False):
    """The status of a Node or of a Pod: whether it is Ready. Of 10,000 of them, nothing else is kept."""

    conditions: tuple[ReadyCondition, ...] = ()

    def __post_init__(self) -> None:
        structs.force_setattr(self, "conditions", _ONLY_READY if _READY in self.conditions else ())


class NodeMeta(Struct, frozen=True, gc=False):
    """Which Node."""

    name: str


class WatchedNode(Struct, frozen=True, gc=False):
    """A Node of Kubernetes, as far as it decides about its node objects."""

    metadata: NodeMeta
    status: ReadyStatus = field(default_factory=ReadyStatus)

    @property
    def ready(self) -> bool:
        """Return whether its condition Ready is True; without one it is not."""
        return bool(self.status.conditions)


class AgentMeta(Struct, frozen=True, rename="camel", gc=False):
    """Which Pod, and since when it is on its way out."""

    name: str
    deletion_timestamp: str | None = None


class AgentSpec(Struct, frozen=True, rename="camel", gc=False):
    """Where a Pod runs; empty while no scheduler has said so."""

    node_name: str = ""


class AgentPod(Struct, frozen=True, gc=False):
    """A Pod of the agents' DaemonSet."""

    metadata: AgentMeta
    spec: AgentSpec = field(default_factory=AgentSpec)
    status: ReadyStatus = field(default_factory=ReadyStatus)

    @property
    def ready(self) -> bool:
        """Return whether it is Ready; one on its way out is not, whatever its condition says."""
        return bool(self.status.conditions) and self.metadata.deletion_timestamp is None


class AgentDaemonSet(Struct, frozen=True, gc=False):
    """The agents' DaemonSet; that it is there says that agents run as its Pods."""

    metadata: NodeMeta


NODES = Resource("v1", "Node", "nodes", namespaced=False, type=WatchedNode)
AGENTS = Resource("v1", "Pod", "pods", namespaced=True, type=AgentPod)
AGENT_SETS = Resource("apps/v1", "DaemonSet", "daemonsets", namespaced=True, type=AgentDaemonSet)


def agents(namespace: str) -> ListSelector:
    """Return which of AGENTS are ours."""
    return ListSelector(namespace, labels=f"app.kubernetes.io/name={AGENT}")


def agent_set(namespace: str) -> ListSelector:
    """Return which of AGENT_SETS is ours."""
    return ListSelector(namespace, fields=f"metadata.name={AGENT}")


class LivenessTracker:
    """The Nodes and their agents. Not thread-safe: who asks holds a lock over what depends on the answer."""

    def __init__(self) -> None:
        self.nodes: dict[str, bool] = {}
        """Whether a Node is Ready; what is not in it, is not there."""
        self.agents: Index[str, AgentPod] = Index(lambda agent: agent.spec.node_name, lambda agent: agent.metadata.name)
        self.deployed = False
        """Whether the agents' DaemonSet is there; else nobody knows about agents, and the Node alone decides."""

    def liveness(self, name: str) -> Liveness:
        """Return what is known of a node."""
        ready = self.nodes.get(name)
        if ready is None:
            return Liveness.GONE
        if not ready:
            return Liveness.NODE_NOT_READY
        if self.deployed and not any(agent.ready for agent in self.agents.get(name)):
            return Liveness.AGENT_NOT_READY
        return Liveness.ANSWERS
