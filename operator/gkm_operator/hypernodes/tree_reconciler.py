"""Build the tree from all providers, and approve it for writing unless the guard stops it. Sends no request.

No change is approved before every configured provider has served once: the objects in the API server stay as they are.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gkm.api.topology_settings import Topology
from gkm.hoststate.logs import fields
from gkm.topology.hypernodes import HyperNode
from gkm.topology.nodes import Node
from gkm.topology.trees.guard import GuardState, Places, judge, places_of_hypernodes, places_of_labels, places_of_tree
from gkm.topology.trees.hypernode_objects import own
from gkm.topology.trees.merge import Named, Snapshot
from gkm.topology.trees.topologies import node_labels
from gkm.topology.trees.tree import Tree
from gkm.topology.trees.volcano import volcano

from gkm_operator import metrics
from gkm_operator.hypernodes.sources import Source
from gkm_operator.hypernodes.watcher import TopologyWatcher

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DesiredTrees:
    """The tree of the topology in the form of each scheduler, and as labels of nodes."""

    tree: Tree
    version: str
    hypernodes: Mapping[str, HyperNode]
    labels: Mapping[str, Mapping[str, str]]
    too_large: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()

    def domains(self) -> dict[str, int]:
        """Return the number of topology domains by level, without domains that a single node forms by itself."""
        levels = zip(self.tree.levels, self.tree.domains, strict=True)
        return {level: sum(not domain.own for domain in domains) for level, domains in levels}

    def placed(self) -> int:
        """Return the number of nodes that lie in a named topology domain at any level."""
        widest = max(
            ([domain.end - domain.first for domain in level if not domain.own] for level in self.tree.domains),
            key=sum,
            default=[],
        )
        return sum(widest)


@dataclass(slots=True)
class TreeState:
    """The result of the last pass of TreeReconciler. `waits_for` are providers that have not served a tree yet.

    `sources` are the placements that the approved tree is made of, the most trusted ones first.

    `snapshot` is the newest one, and `desired` what its tree makes. The guard has `compared` the approved tree with
    what these kinds of objects show.
    """

    waits_for: tuple[str, ...] = ()
    guard: GuardState = field(default_factory=GuardState)
    compared: frozenset[str] = frozenset()
    snapshot: Snapshot | None = None
    desired: DesiredTrees | None = None
    approved: DesiredTrees | None = None
    sources: Named | None = None


class TreeReconciler:
    """Builds the tree from all sources, and approves it by the guard. One thread writes; others may read `state`."""

    def __init__(self, watcher: TopologyWatcher, sources: Sequence[Source], settings: Topology) -> None:
        self.state = TreeState()
        self.on_approved: Callable[[], None] = lambda: None
        self._watcher = watcher
        self._sources = sources
        self._settings = settings

    @property
    def approved(self) -> DesiredTrees | None:
        """Return the tree that may be written now; None while the guard has not compared all listed objects."""
        return self.state.approved if self._listed() <= self.state.compared else None

    def approved_sources(self) -> Named | None:
        """Return the placements that Runs are planned with; None before the first approval."""
        return self.state.sources

    def reconcile(self, now: float) -> float | None:
        """Approve the current tree or reject it; `now` is monotonic.

        Return the seconds until the guard's next round, None if no round is due.
        """
        state = self.state
        served = {source.name: source.placements for source in self._sources}
        state.waits_for = tuple(name for name, placed in served.items() if placed is None)
        if state.waits_for:
            return None
        by_provider = [(name, placed) for name, placed in served.items() if placed is not None]
        nodes = {node.name: node for node in self._watcher.nodes.values()}
        state.snapshot = (state.snapshot or Snapshot.start(self._settings)).changed(nodes, by_provider)
        if state.desired is None or state.desired.tree is not state.snapshot.tree:
            state.desired = self._render(state.snapshot.tree)
        after = self._approve(state.desired, nodes, now)
        if state.desired is state.approved and not state.guard.tripped:
            self._publish(by_provider)
        return after

    def _publish(self, by_provider: Named) -> None:
        if self.state.sources != by_provider:
            self.state.sources = by_provider
            self.on_approved()

    def _render(self, tree: Tree) -> DesiredTrees:
        """Return what the schedulers are to see."""
        rendered = volcano(tree, self._settings)
        labels = node_labels(tree, self._settings) if self._settings.node_labels else {}
        desired = DesiredTrees(tree, tree.version(), rendered.hypernodes, labels, rendered.too_large, rendered.unlisted)
        in_domains = desired.placed()
        metrics.record_tree(desired.domains(), in_domains, len(tree.nodes) - in_domains, len(tree.quarantined))
        counts = fields(nodes=len(tree.nodes), quarantined=len(tree.quarantined), hypernodes=len(rendered.hypernodes))
        _LOG.info("topology tree changed", extra=counts)
        return desired

    def _approve(self, desired: DesiredTrees, nodes: Mapping[str, Node], now: float) -> float | None:
        state = self.state
        if added := self._listed() - state.compared:
            # New objects in the list show places that were not compared.
            state.approved = None
            for kind in sorted(added):
                state.guard = state.guard.seeing(self._shown(kind))
            state.compared |= added
        if desired is state.approved and not state.guard.tripped:
            return None
        was_tripped = state.guard.tripped
        state.guard = judge(state.guard, places_of_tree(desired.tree), nodes, self._settings.guard, now)
        if state.guard.tripped:
            if not was_tripped:
                metrics.TOPOLOGY_GUARD_TRIPS.inc()
            # An earlier approved tree is written to its end.
            return self._settings.guard.interval_seconds
        state.approved = desired
        return None

    def _listed(self) -> frozenset[str]:
        """Return the kinds of objects that show places, are written, and have been listed."""
        hypernodes = self._settings.hyper_nodes.enabled and self._watcher.hypernodes.synced.is_set()
        return frozenset(["HyperNode"] * hypernodes + ["Node"] * self._settings.node_labels)

    def _shown(self, kind: str) -> Places:
        if kind == "Node":
            return places_of_labels((node.name, node.labels) for node in self._watcher.nodes.values())
        levels = [level.name for level in self._settings.levels]
        return places_of_hypernodes(own(self._watcher.hypernodes.values(), levels).values())
