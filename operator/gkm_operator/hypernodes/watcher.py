"""The watches of the topology: nodes, HyperNodes of all sources, and what the configured providers read besides.

Must never write to the API server.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any

from gkm.api.config import Config
from gkm.api.fabrics import SURVEY_PREFIX
from gkm.api.grammar import listed
from gkm.api.hypernodes import HyperNodeObject
from gkm.kube.api import Api, ListSelector
from gkm.kube.controller import WatchSet
from gkm.kube.informers import Informers
from gkm.kube.reflector import OnChange, Reflector
from gkm.kube.resources import HYPERNODES
from gkm.topology.hypernode_objects import is_ours
from gkm.topology.nodes import Node
from gkm.topology.providers import LABELS
from gkm.topology.trees.labels import level_labels

from gkm_operator.hypernodes.objects import FABRICS, SURVEY_LABELS, SURVEYS, WatchedFabric, WatchedSurvey
from gkm_operator.hypernodes.providers.mailbox import READS
from gkm_operator.hypernodes.providers.messages import Written
from gkm_operator.nodes import NODES


class Input:
    """Something that a provider or a writer reads: `version` grows with each relevant change."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.version = 0
        self._versions = count(1)
        self._changed = changed

    def advance(self) -> None:
        """Record a change."""
        self.version = next(self._versions)
        self._changed()


class TopologyWatcher:
    """The reflectors that the configuration needs; `changed` is called after each relevant change. Thread-safe.

    The other callbacks get every change of an object that is relevant, and every one of a NodeFabric. Add them before
    `start`.
    """

    def __init__(
        self,
        api: Api,
        config: Config,
        namespace: str,
        *,
        changed: Callable[[], None],
        informers: Informers | None = None,
    ) -> None:
        providers = {provider.name for provider in config.topology.providers}
        self._config = config
        self.node_changed: list[OnChange[Node]] = []
        self.fabric_changed: list[OnChange[WatchedFabric]] = []
        self.hypernode_changed: list[OnChange[HyperNodeObject]] = []
        self.awaited_surveys: Callable[[], str] = str
        """Returns what the provider `infiniband` waits for, once everything is listed."""
        self.node_input, self.hypernode_input = Input(changed), Input(changed)
        self.survey_input = Input(changed)
        self.nodes = (informers or Informers(api)).of(NODES)
        self.nodes.subscribe(self._node)
        self.hypernodes = Reflector(api, HYPERNODES, self._hypernode)
        self.fabrics = Reflector(api, FABRICS, self._fabric)
        of_surveys = ListSelector(namespace, labels=SURVEY_LABELS)
        self.surveys = Reflector(api, SURVEYS, self._survey, selector=of_surveys, retain=_is_survey)
        self._read_by = {provider: self._reads(provider) for provider in (LABELS, *providers)}
        self._watches = WatchSet()

    @property
    def synced(self) -> bool:
        """Return whether the watches of Nodes and of HyperNodes, if it has started, have listed once."""
        needed = [one for one in (self.nodes, self.hypernodes) if one in self._watches]
        return bool(needed) and all(reflector.synced.is_set() for reflector in needed)

    @property
    def wanted(self) -> tuple[Reflector[Any], ...]:
        """Return the reflectors that the providers need."""
        return tuple(dict.fromkeys(one for reflectors in self._read_by.values() for one in reflectors))

    def awaited(self, provider: str) -> str:
        """Return what a provider reads of the cluster that is not in its view yet, as a predicate; "" for nothing."""
        unlisted = [one.resource.plural for one in self._read_by[provider] if not one.synced.is_set()]
        if unlisted:
            return f"waits for the list of {listed(unlisted, 3)}: if it does not come, the controllers' log says why"
        return self.awaited_surveys() if provider == "infiniband" else ""

    def start(self, *, hypernodes: bool) -> None:
        """Start the watches that have not started; that of HyperNodes only where their kind is installed."""
        self._watches.start(*self.wanted, *((self.hypernodes,) if hypernodes else ()))

    def close(self, seconds: float) -> None:
        """Stop the watches."""
        self._watches.close(seconds)

    def chosen_surveys(self) -> Mapping[str, str]:
        """Return the digests of surveys by node, of the nodes that the configuration chooses and that exist."""
        chooses = self._config.fabric.ibnetdiscover.chooses
        found = {survey.node: survey.digest for survey in self.surveys.values() if survey.digest}
        return {
            node.name: found[node.name]
            for node in self.nodes.values()
            if node.name in found and chooses(node.name, node.labels)
        }

    def written(self) -> Written:
        """Return the names of domains that schedulers see: of our HyperNodes, and in labels of nodes."""
        topology = self._config.topology
        names = {found.name for found in self.hypernodes.values() if is_ours(found)}
        names.update(*(level_labels(node.labels).values() for node in self.nodes.values()))
        return Written(
            frozenset(names), tuple(level.name for level in topology.levels), topology.hyper_nodes.hash_names
        )

    def _reads(self, provider: str) -> tuple[Reflector[Any], ...]:
        if provider == LABELS:
            return (self.nodes,)
        # Entry points see the GUIDs of Nodes, and would lose nodes without them.
        reads = READS.get(provider, {"Ports"})
        fabrics = (self.fabrics,) if reads & {"Ports", "Neighbors"} else ()
        return self.nodes, *fabrics, *((self.surveys,) if "Survey" in reads else ())

    def _node(self, old: Node | None, new: Node | None) -> None:
        # kubelets update the status of every Node all the time.
        if old is None or new is None or old.labels != new.labels or (old.gpus is None) != (new.gpus is None):
            self._advance(self.node_input, self.node_changed, old, new)

    def _fabric(self, old: WatchedFabric | None, new: WatchedFabric | None) -> None:
        for callback in self.fabric_changed:
            callback(old, new)

    def _survey(self, old: WatchedSurvey | None, new: WatchedSurvey | None) -> None:
        if old is None or new is None or old.digest != new.digest:
            self.survey_input.advance()

    def _hypernode(self, old: HyperNodeObject | None, new: HyperNodeObject | None) -> None:
        if old is None or new is None or _written(old) != _written(new):
            self._advance(self.hypernode_input, self.hypernode_changed, old, new)

    @staticmethod
    def _advance(changed: Input, callbacks: Iterable[Callable[[Any, Any], None]], old: object, new: object) -> None:
        for callback in callbacks:
            callback(old, new)
        changed.advance()


def _is_survey(survey: WatchedSurvey) -> bool:
    return survey.metadata.name.startswith(SURVEY_PREFIX)


def _written(found: HyperNodeObject) -> object:
    return found.spec, is_ours(found)
