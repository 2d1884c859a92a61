"""What the nodes say of the caches, and which of them still answer, watched and summed up by differences."""

from collections.abc import Callable, Iterable
from typing import Any

from gkm.kube.api import Api
from gkm.kube.reflector import Reflector
from gkm.kube.resources import Resource
from gkm.kube.secrets import DEFAULT_NAMESPACE

from gkm_operator.caches.contributions import CLUSTER_REPORTS, REPORTS, Report
from gkm_operator.caches.fleet import Fleet
from gkm_operator.caches.presence import AGENT_SETS, AGENTS, NODES, Agent, AgentSet, Node, agent_set, agents
from gkm_operator.caches.tally import CacheKey, Summary

SeeNode = Callable[[Node | None, Node | None], None]
"""Told of every difference of a Node, as a reflector tells it."""


def nobody(_old: Node | None, _new: Node | None) -> None:
    """Look away."""


class Aggregation:
    """Node objects of both kinds, Nodes, and the agents in GKM's `namespace`.

    `changed` is told of every cache whose sums are others than before. Nodes are read as `nodes`, and `see` is shown
    them too: who else needs a little of every Node need not watch them again.
    """

    def __init__(
        self,
        api: Api,
        changed: Callable[[CacheKey], None],
        namespace: str = DEFAULT_NAMESPACE,
        *,
        nodes: Resource[Node] = NODES,
        see: SeeNode = nobody,
    ) -> None:
        self._changed = changed
        self._see = see
        self._fleet = Fleet()
        # Started in this order: of a node whose standing is known before it reports, the sums are made once.
        self.reflectors: tuple[Reflector[Any], ...] = (
            Reflector(api, AGENT_SETS, self._agent_set_changed, selector=agent_set(namespace)),
            Reflector(api, AGENTS, self._agent_changed, selector=agents(namespace)),
            Reflector(api, nodes, self._node_changed),
            Reflector(api, REPORTS, self._report_changed),
            Reflector(api, CLUSTER_REPORTS, self._report_changed),
        )

    def summary(self, key: CacheKey, digest: str | None) -> Summary:
        """Return the sums of a cache, for the digest that it stands for."""
        return self._fleet.summary(key, digest)

    def _report_changed(self, old: Report | None, new: Report | None) -> None:
        self._tell(self._fleet.reported(old, new))

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        self._see(old, new)
        # kubelets write the status of every Node again and again: what does not concern us ends here.
        before, after = (None if node is None else node.ready for node in (old, new))
        node = new or old
        if node is not None and before != after:
            self._tell(self._fleet.node(node.metadata.name, ready=after))

    def _agent_changed(self, old: Agent | None, new: Agent | None) -> None:
        self._tell(self._fleet.agent(old, new))

    def _agent_set_changed(self, old: AgentSet | None, new: AgentSet | None) -> None:
        # Its status is written for every agent that comes or goes: only whether it is there concerns all nodes.
        if (old is None) != (new is None):
            self._tell(self._fleet.agents_deployed(deployed=new is not None))

    def _tell(self, keys: Iterable[CacheKey]) -> None:
        for key in keys:
            self._changed(key)
