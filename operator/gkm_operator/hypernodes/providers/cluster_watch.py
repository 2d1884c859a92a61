"""The watches of a provider's process: Nodes, and HyperNodes, NodeFabrics and surveys where the provider reads them.

The watches show the cluster to the provider: HyperNodes of all sources, Nodes, and the agents' reports about them. The
texts of surveys are not watched but fetched, for chosen nodes only.

Must never write to the API server.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from hashlib import sha256
from threading import Lock
from typing import Any

import msgspec
from gkm.api.config import Config
from gkm.api.fabrics import SURVEY_KEY, SURVEY_PREFIX, InfiniBandPort, NodeFabric, NodeFabricStatus
from gkm.api.grammar import count_of, listed
from gkm.api.hypernodes import HyperNodeObject, ThinMetadata
from gkm.api.meta import API_VERSION, ObjectMeta
from gkm.api.nodes import NODE_LABEL, NodeSpec
from gkm.hoststate.logs import fields
from gkm.kube.api import Api, ListSelector
from gkm.kube.controller import end
from gkm.kube.discovery import is_served
from gkm.kube.errors import ApiError
from gkm.kube.reflector import Reflector
from gkm.kube.resources import HYPERNODES, Resource
from gkm.kube.workqueue import Retry
from gkm.topology.nodes import Node
from gkm.topology.providers import ClusterNode
from gkm.topology.trees.hypernode_objects import value
from msgspec import Struct, field, structs

from gkm_operator.actions import run_each
from gkm_operator.hypernodes.providers.view import AgentReport, Kind, LiveView
from gkm_operator.nodes import NODES

_LOG = logging.getLogger(__name__)
_NO_STATUS = NodeFabricStatus()


class WatchedFabric(Struct, frozen=True, gc=False):
    """A NodeFabric, kept as two JSON texts: one with the GUIDs of its ports, one with its neighbors.

    That takes little memory, and is quick to compare. The state of a port, which changes most, is in no part of it.
    """

    metadata: ThinMetadata
    status: NodeFabricStatus = _NO_STATUS
    ports: bytes = b""
    neighbors: bytes = b""
    guids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        status = self.status
        ports = [
            InfiniBandPort(port.device, port.port, port.node_guid, port.port_guid)
            for port in status.infiniband
            if port.port_guid or port.node_guid
        ]
        structs.force_setattr(self, "ports", self._reduced(NodeFabricStatus(infiniband=ports)))
        structs.force_setattr(self, "neighbors", self._reduced(NodeFabricStatus(ethernet=status.ethernet)))
        structs.force_setattr(self, "guids", tuple(sorted({*_guids(ports)})))
        structs.force_setattr(self, "status", _NO_STATUS)

    def _reduced(self, status: NodeFabricStatus) -> bytes:
        name = self.metadata.name
        return msgspec.json.encode(NodeFabric(ObjectMeta(name=name), NodeSpec(node_name=name), status))


def _guids(ports: Iterable[InfiniBandPort]) -> Iterator[str]:
    for port in ports:
        yield from filter(None, (port.port_guid, port.node_guid))


class SurveyText(Struct, frozen=True, gc=False):
    """The text of an InfiniBand survey: output of ibnetdiscover, compressed and in base64."""

    text: str = field(default="", name=SURVEY_KEY)


class Survey(Struct, frozen=True, gc=False):
    """The ConfigMap with an InfiniBand survey, up to 1 MiB. An agent wrote it, so it is untrusted."""

    metadata: ThinMetadata
    data: SurveyText = SurveyText()


class WatchedSurvey(Struct, frozen=True, gc=False):
    """The ConfigMap of a survey without its text; `digest` changes with the text and is "" if the text is absent."""

    metadata: ThinMetadata
    data: SurveyText = SurveyText()
    digest: str = ""

    def __post_init__(self) -> None:
        text = self.data.text
        structs.force_setattr(self, "digest", sha256(text.encode()).hexdigest() if text else "")
        structs.force_setattr(self, "data", SurveyText())

    @property
    def node(self) -> str:
        """Return the name of the node that made the survey; an admission policy lets an agent write its own only."""
        return self.metadata.name.removeprefix(SURVEY_PREFIX)


FABRICS = Resource(
    API_VERSION,
    "NodeFabric",
    "nodefabrics",
    namespaced=False,
    type=WatchedFabric,
    unbounded="only agents write it, 512 ports and interfaces at most (gkm.api.fabrics.MAX_PORTS)",
)
SURVEYS = Resource("v1", "ConfigMap", "configmaps", namespaced=True, type=WatchedSurvey, page_limit=32)
"""The collection of surveys; each has almost 1 MB, so its pages are small."""
SURVEY_TEXTS = SURVEYS.of(Survey)
SURVEY_LABELS = f"{NODE_LABEL},app.kubernetes.io/part-of=gkm"
"""Selects the ConfigMaps with surveys by labels."""


class ClusterWatch:
    """The watches that a provider's process needs; every change is passed to the provider's view. Thread-safe."""

    def __init__(self, api: Api, config: Config, view: LiveView, *, namespace: str, reads: frozenset[Kind]) -> None:
        self._api = api
        self._chooses = config.fabric.ibnetdiscover.chooses
        self._reads = reads
        self._view = view
        # A Node is published by the threads of two watches, and the last reader must publish last.
        self._order = Lock()
        self.nodes = Reflector(api, NODES, self._node)
        self.hypernodes = Reflector(api, HYPERNODES, self._hypernode)
        self.fabrics = Reflector(api, FABRICS, self._fabric)
        of_surveys = ListSelector(namespace, labels=SURVEY_LABELS)
        self.surveys = Reflector(
            api, SURVEYS, selector=of_surveys, retain=lambda survey: survey.metadata.name.startswith(SURVEY_PREFIX)
        )
        self._started: list[Reflector[Any]] = []

    @property
    def wanted(self) -> tuple[Reflector[Any], ...]:
        """Return the watches that the provider needs, except HyperNodes, whose kind may not be installed."""
        fabrics = (self.fabrics,) if self._reads & {"Ports", "Neighbors"} else ()
        return self.nodes, *fabrics, *((self.surveys,) if self.reads_surveys else ())

    @property
    def reads_surveys(self) -> bool:
        """Return whether the provider reads InfiniBand surveys."""
        return "Survey" in self._reads

    def start(self) -> None:
        """Start the watches that have not started yet; HyperNodes only if their kind is installed.

        Raises:
            ApiError: the API server does not say whether it has HyperNodes; the other watches have started.
        """
        for reflector in self.wanted:
            self._start(reflector)
        if "HyperNode" in self._reads and self.hypernodes not in self._started and is_served(self._api, HYPERNODES):
            self._start(self.hypernodes)

    def awaited(self) -> str:
        """Return which kinds are not listed yet, as the end of a sentence; "" if all are listed."""
        started = {*map(id, self._started)}
        needed = [*self.wanted, *((self.hypernodes,) if id(self.hypernodes) in started else ())]
        unlisted = [one.resource.plural for one in needed if not one.synced.is_set()]
        if not unlisted:
            return ""
        return f"waits for the list of {listed(unlisted, 3)}: if it does not come, the log of its pod says why"

    def close(self, seconds: float) -> None:
        """Stop the watches; wait at most `seconds` in total."""
        end(self._started, seconds)

    def chosen_surveys(self) -> Mapping[str, str]:
        """Return the digest of the survey of each node that the configuration chooses and that exists."""
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


MAX_SURVEYS = 32
"""Limit of surveys that are read, those of the first nodes by name; each has at most 1 MB."""


class SurveyFeed:
    """Fetches the texts of surveys and passes them to the provider's view. Only one thread at a time may use it."""

    def __init__(self, api: Api, watch: ClusterWatch, view: LiveView, namespace: str) -> None:
        self._api = api
        self._watch = watch
        self._view = view
        self._namespace = namespace
        self._published: dict[str, str] = {}
        """Digests by node."""
        self._absent: dict[str, str] = {}
        """Digests of surveys that the API server did not have any more when they were fetched, by node."""

    def awaited(self) -> str:
        """Return a sentence while chosen surveys are not fetched, because a tree without them lacks nodes.

        "" if all are.
        """
        missing = sum(
            node not in self._published and self._absent.get(node) != digest for node, digest in self._chosen().items()
        )
        return f"waits for {count_of(missing, 'survey')}, which the API server has not given yet" if missing else ""

    def publish(self) -> None:
        """Fetch surveys that changed and pass them to the view; remove surveys of nodes that are not chosen any more.

        Raises:
            ApiError: a survey cannot be fetched; the others are published, unless the API server is away or overloaded.
            Retry: the surveys are not listed yet.
        """
        if not (self._watch.nodes.synced.is_set() and self._watch.surveys.synced.is_set()):
            raise Retry("the ConfigMaps with InfiniBand surveys of nodes are not listed yet")
        chosen = self._chosen()
        self._absent = {node: digest for node, digest in self._absent.items() if node in chosen}
        for node in self._published.keys() - chosen.keys():
            self._view.publish([], [("Survey", node)])
            del self._published[node]
        changed = (each for each in chosen.items() if self._published.get(each[0]) != each[1])
        run_each(partial(self._fetch, node, digest) for node, digest in changed)

    def _fetch(self, node: str, digest: str) -> None:
        try:
            text = self._api.get(SURVEY_TEXTS, SURVEY_PREFIX + node, self._namespace).data.text
        except ApiError as error:
            if error.not_found:
                self._absent[node] = digest
            raise
        self._view.publish([AgentReport("Survey", node, text.encode())])
        self._published[node] = digest

    def _chosen(self) -> Mapping[str, str]:
        return dict(sorted(self._watch.chosen_surveys().items())[:MAX_SURVEYS])


class ClusterSources:
    """The cluster objects that a provider reads: watches, and the surveys that they name."""

    def __init__(self, api: Api, config: Config, view: LiveView, *, namespace: str, reads: frozenset[Kind]) -> None:
        self._watch = ClusterWatch(api, config, view, namespace=namespace, reads=reads)
        self._surveys = SurveyFeed(api, self._watch, view, namespace)
        self._lock = Lock()
        self._logged = ""

    def check(self) -> str:
        """Start missing watches and read changes; return which sources are missing, "" if all are there."""
        with self._lock:
            try:
                self._watch.start()
                if awaited := self._watch.awaited():
                    return awaited
                if self._watch.reads_surveys:
                    self._surveys.publish()
            except (ApiError, Retry) as error:
                self._log(str(error))
                return self._surveys.awaited() or "waits for the API server: the log of its pod says why"
            return self._surveys.awaited() if self._watch.reads_surveys else ""

    def close(self) -> None:
        """Stop the watches of the cluster objects that the provider reads; wait at most 1 second."""
        self._watch.close(1.0)

    def _log(self, why: str) -> None:
        """Log a reason once, although each check finds it."""
        if why != self._logged:
            self._logged = why
            _LOG.warning("objects of the cluster not read by the topology provider, tried again", extra=fields(why=why))
