"""Watches node reports, Nodes and agents, and passes their changes to the fleet's totals."""

from collections.abc import Callable, Iterable
from typing import Any

from gkm.kube.api import Api
from gkm.kube.reflector import Reflector
from gkm.kube.resources import Resource
from gkm.kube.secrets import DEFAULT_NAMESPACE

from gkm_operator.caches.nodes.fleet import Fleet
from gkm_operator.caches.nodes.liveness import (
    AGENT_SETS,
    AGENTS,
    NODES,
    AgentDaemonSet,
    AgentPod,
    WatchedNode,
    agent_set,
    agents,
)
from gkm_operator.caches.nodes.reports import CLUSTER_REPORTS, REPORTS, NodeObject
from gkm_operator.caches.nodes.totals import CacheKey

SeeNode = Callable[[WatchedNode | None, WatchedNode | None], None]
"""Called with every change of a Node, as a reflector reports it."""


SeeReport = Callable[[NodeObject | None, NodeObject | None], None]
"""Called with every change of a node object."""


def ignore(_old: object, _new: object) -> None:
    """Do nothing."""


class NodeWatcher:
    """Watches node objects of both kinds, Nodes, and the agents in GKM's `namespace`; `fleet` has the totals.

    `changed` is called with every cache whose totals have changed. Nodes are decoded as `nodes`. `see` receives the
    changes of Nodes too, and `see_report` those of node objects: another controller need not watch them again.
    """

    def __init__(
        self,
        api: Api,
        changed: Callable[[CacheKey], None],
        namespace: str = DEFAULT_NAMESPACE,
        *,
        nodes: Resource[WatchedNode] = NODES,
        see: SeeNode = ignore,
        see_report: SeeReport = ignore,
    ) -> None:
        self._changed = changed
        self._see = see
        self._see_report = see_report
        self.fleet = Fleet()
        # Started in this order: if a node's liveness is known before its report, its totals are computed once.
        self.reflectors: tuple[Reflector[Any], ...] = (
            Reflector(api, AGENT_SETS, self._agent_set_changed, selector=agent_set(namespace)),
            Reflector(api, AGENTS, self._agent_changed, selector=agents(namespace)),
            Reflector(api, nodes, self._node_changed),
            Reflector(api, REPORTS, self._report_changed),
            Reflector(api, CLUSTER_REPORTS, self._report_changed),
        )

    def _report_changed(self, old: NodeObject | None, new: NodeObject | None) -> None:
        self._see_report(old, new)
        self._enqueue(self.fleet.reported(old, new))

    def _node_changed(self, old: WatchedNode | None, new: WatchedNode | None) -> None:
        self._see(old, new)
        # kubelets write the status of every Node all the time: only a change of readiness matters here.
        before, after = (None if node is None else node.ready for node in (old, new))
        node = new or old
        if node is not None and before != after:
            self._enqueue(self.fleet.node(node.metadata.name, ready=after))

    def _agent_changed(self, old: AgentPod | None, new: AgentPod | None) -> None:
        self._enqueue(self.fleet.agent(old, new))

    def _agent_set_changed(self, old: AgentDaemonSet | None, new: AgentDaemonSet | None) -> None:
        # Its status changes with every agent: only its existence affects the nodes.
        if (old is None) != (new is None):
            self._enqueue(self.fleet.agents_deployed(deployed=new is not None))

    def _enqueue(self, keys: Iterable[CacheKey]) -> None:
        for key in keys:
            self._changed(key)
