"""Watches node reports, Nodes and agents, and passes their changes to the fleet's totals."""

from collections.abc import Callable, Iterable

from gkm.kube.api import Api
from gkm.kube.informers import Informers
from gkm.kube.reflector import Reflector
from gkm.kube.secrets import DEFAULT_NAMESPACE
from gkm.topology.nodes import Node

from gkm_operator.caches.nodes.fleet import Fleet
from gkm_operator.caches.nodes.liveness import AGENT_SETS, AgentDaemonSet, agent_set, agents
from gkm_operator.caches.nodes.reports import CLUSTER_REPORTS, REPORTS, NodeObject
from gkm_operator.caches.nodes.totals import CacheKey
from gkm_operator.nodes import NODES
from gkm_operator.pods import PODS, WatchedPod, is_agent


class NodeWatcher:
    """Watches node objects of both kinds, Nodes, and the agents in GKM's `namespace`; `fleet` has the totals.

    `changed` is called with every cache whose totals have changed.
    """

    def __init__(
        self,
        api: Api,
        changed: Callable[[CacheKey], None],
        namespace: str = DEFAULT_NAMESPACE,
        *,
        informers: Informers | None = None,
    ) -> None:
        self._changed = changed
        self.fleet = Fleet()
        shared = informers or Informers(api)
        nodes, reports, cluster_reports = shared.of(NODES), shared.of(REPORTS), shared.of(CLUSTER_REPORTS)
        nodes.subscribe(self._node_changed)
        for each in (reports, cluster_reports):
            each.subscribe(self._report_changed)
        # Started in this order: if a node's liveness is known before its report, its totals are computed once.
        self.reflectors = (
            Reflector(api, AGENT_SETS, self._agent_set_changed, selector=agent_set(namespace)),
            shared.select(PODS, self._agent_changed, wants=is_agent(namespace), selector=agents(namespace)),
            nodes,
            reports,
            cluster_reports,
        )

    def _report_changed(self, old: NodeObject | None, new: NodeObject | None) -> None:
        self._enqueue(self.fleet.reported(old, new))

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        # kubelets write the status of every Node all the time: only a change of readiness matters here.
        before, after = (None if node is None else node.ready for node in (old, new))
        node = new or old
        if node is not None and before != after:
            self._enqueue(self.fleet.node(node.metadata.name, ready=after))

    def _agent_changed(self, old: WatchedPod | None, new: WatchedPod | None) -> None:
        self._enqueue(self.fleet.agent(old, new))

    def _agent_set_changed(self, old: AgentDaemonSet | None, new: AgentDaemonSet | None) -> None:
        # Its status changes with every agent: only its existence affects the nodes.
        if (old is None) != (new is None):
            self._enqueue(self.fleet.agents_deployed(deployed=new is not None))

    def _enqueue(self, keys: Iterable[CacheKey]) -> None:
        for key in keys:
            self._changed(key)
