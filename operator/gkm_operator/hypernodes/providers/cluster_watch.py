"""The watches of a provider's process: Nodes, and HyperNodes, NodeFabrics and surveys where the provider reads them.

They show the cluster to the provider: HyperNodes of all sources, Nodes, and what agents report of them.

Must never write to the API server.
"""

from collections.abc import Mapping
from threading import Lock
from typing import Any

from gkm.api.config import Config
from gkm.api.fabrics import SURVEY_PREFIX
from gkm.api.grammar import listed
from gkm.api.hypernodes import HyperNodeObject
from gkm.kube.api import Api, ListSelector
from gkm.kube.discovery import is_served
from gkm.kube.reflector import Reflector
from gkm.kube.resources import HYPERNODES
from gkm.topology.nodes import Node
from gkm.topology.providers import ClusterNode
from gkm.topology.trees.hypernode_objects import value

from gkm_operator.hypernodes.objects import FABRICS, SURVEY_LABELS, SURVEYS, WatchedFabric, WatchedSurvey
from gkm_operator.hypernodes.providers.view import AgentReport, Kind, LiveView
from gkm_operator.nodes import NODES


class ClusterWatch:
    """The reflectors that a provider needs, which publish every change to its view. Thread-safe."""

    def __init__(self, api: Api, config: Config, view: LiveView, *, namespace: str, reads: frozenset[Kind]) -> None:
        self._api = api
        self._chooses = config.fabric.ibnetdiscover.chooses
        self._reads = reads
        self._view = view
        # A Node is published by the threads of two watches, and the one that reads last must publish last.
        self._order = Lock()
        self.nodes = Reflector(api, NODES, self._node)
        self.hypernodes = Reflector(api, HYPERNODES, self._hypernode)
        self.fabrics = Reflector(api, FABRICS, self._fabric)
        of_surveys = ListSelector(namespace, labels=SURVEY_LABELS)
        self.surveys = Reflector(api, SURVEYS, lambda _old, _new: None, selector=of_surveys, retain=_is_survey)
        self._started: list[Reflector[Any]] = []

    @property
    def wanted(self) -> tuple[Reflector[Any], ...]:
        """Return the reflectors that the provider needs, without that of HyperNodes, whose kind may be missing."""
        fabrics = (self.fabrics,) if self._reads & {"Ports", "Neighbors"} else ()
        return self.nodes, *fabrics, *((self.surveys,) if self.reads_surveys else ())

    @property
    def reads_surveys(self) -> bool:
        """Return whether the provider reads surveys."""
        return "Survey" in self._reads

    def start(self) -> None:
        """Start the watches that have not started; that of HyperNodes only where their kind is installed.

        Raises:
            ApiError: the API server does not say whether it has HyperNodes; the other watches have started.
        """
        for reflector in self.wanted:
            self._start(reflector)
        if "HyperNode" in self._reads and self.hypernodes not in self._started and is_served(self._api, HYPERNODES):
            self._start(self.hypernodes)

    def awaited(self) -> str:
        """Return what is not listed yet, as a predicate; "" for nothing."""
        started = {*map(id, self._started)}
        needed = [*self.wanted, *((self.hypernodes,) if id(self.hypernodes) in started else ())]
        unlisted = [one.resource.plural for one in needed if not one.synced.is_set()]
        if not unlisted:
            return ""
        return f"waits for the list of {listed(unlisted, 3)}: if it does not come, the log of its pod says why"

    def close(self, seconds: float) -> None:
        """Stop the watches."""
        for reflector in self._started:
            reflector.close(seconds)

    def chosen_surveys(self) -> Mapping[str, str]:
        """Return the digests of surveys by node, of the nodes that the configuration chooses and that exist."""
        found = {survey.node: survey.digest for survey in self.surveys.values() if survey.digest}
        return {
            node.name: found[node.name]
            for node in self.nodes.values()
            if node.name in found and self._chooses(node.name, node.labels)
        }

    def _start(self, reflector: Reflector[Any]) -> None:
        if reflector not in self._started:
            self._started.append(reflector)
            reflector.start()

    def _node(self, old: Node | None, new: Node | None) -> None:
        if (old is None or new is None) and (node := new or old) is not None:
            self._publish_node(node.name)

    def _fabric(self, old: WatchedFabric | None, new: WatchedFabric | None) -> None:
        if (fabric := new or old) is None:
            return
        name = fabric.metadata.name
        if old is None or new is None or old.guids != new.guids:
            self._publish_node(name)
        before, after = _reports(old), _reports(new)
        changed = [AgentReport(kind, name, data) for kind, data in after.items() if kind in self._reads]
        self._view.publish(
            [report for report in changed if before.get(report.kind) != report.data],
            [(kind, name) for kind in before if kind not in after],
        )

    def _hypernode(self, old: HyperNodeObject | None, new: HyperNodeObject | None) -> None:
        if new is not None:
            self._view.publish([value(new)])
        elif old is not None:
            self._view.publish([], [("HyperNode", old.name)])

    def _publish_node(self, name: str) -> None:
        with self._order:
            if self.nodes.get(name) is None:
                self._view.publish([], [("Node", name)])
                return
            fabric = self.fabrics.get(name)
            self._view.publish([ClusterNode(name, fabric.guids if fabric is not None else ())])


def _reports(fabric: WatchedFabric | None) -> Mapping[Kind, bytes]:
    return {"Ports": fabric.ports, "Neighbors": fabric.neighbors} if fabric is not None else {}


def _is_survey(survey: WatchedSurvey) -> bool:
    return survey.metadata.name.startswith(SURVEY_PREFIX)
