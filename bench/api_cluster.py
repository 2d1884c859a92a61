"""A control plane whose API server keeps an audit log of the agent, with GKM's kinds, rights and policies in it."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent_process import NODE
from api_audit import AGENT
from support.chart.deploy_files import rendered
from support.cluster.audit import Audit
from support.cluster.audited_cluster import audited_cluster
from support.cluster.cluster import Cluster
from support.cluster.gkm_objects import namespace
from support.kube import our_kinds

NAMESPACES = tuple(f"bench-{number}" for number in range(4))
_MANIFESTS = ("namespace", "agent", "agent-policy", "fabric", "fabric-policy")
"""The agent's rights and policies, without the webhook, which has no server here."""


@dataclass(frozen=True)
class AgentCluster:
    """A running control plane with a Node; `account` is a kubeconfig of the agent with a token bound to that Node."""

    cluster: Cluster
    audit: Audit
    account: Path


@contextmanager
def start(directory: Path, labels: Mapping[str, str]) -> Iterator[AgentCluster]:
    """Start it with the namespaces and a Node with these labels."""
    with ExitStack() as stack:
        cluster, audit = stack.enter_context(audited_cluster(directory))
        our_kinds.install(cluster)
        for name in _MANIFESTS:
            cluster.apply(rendered() / "base" / f"{name}.yaml")
        for name in NAMESPACES:
            cluster.apply(namespace(name))
        cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": dict(labels)}})
        yield AgentCluster(cluster, audit, cluster.kubeconfig_for(AGENT, node=NODE))
