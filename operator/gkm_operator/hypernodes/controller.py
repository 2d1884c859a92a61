"""The controller of the topology: the threads and the queue that read sources, build the tree and write it.

One thread checks at intervals whether the API server has the kinds that the configuration needs. A queue has a key for
each provider, for the tree, for each sink, for replies and for the report; each of them is level-triggered. It is idle
unless the configuration asks for HyperNodes, a Topology or node labels.
"""

import logging
import time
from collections.abc import Callable
from functools import partial

from gkm.api.config import Config
from gkm.api.grammar import agree, count_of, listed
from gkm.api.topology_status import TopologyReason
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff, TokenBucket
from gkm.kube.api import Api
from gkm.kube.controller import Controller
from gkm.kube.informers import Informers
from gkm.kube.resources import HYPERNODES, KAI_TOPOLOGIES, KUEUE_TOPOLOGIES, KUEUE_TOPOLOGIES_V1BETA2
from gkm.kube.secrets import DEFAULT_NAMESPACE
from gkm.kube.workqueue import Retry, WorkQueue
from gkm.topology.providers import LABELS, by_trust
from gkm.topology.trees import topologies

from gkm_operator import metrics
from gkm_operator.hypernodes.findings import Blocked
from gkm_operator.hypernodes.report import Overview, TopologyReport
from gkm_operator.hypernodes.sources import LabelSource, ProviderSource, Source
from gkm_operator.hypernodes.tree_reconciler import DesiredTrees, TreeReconciler
from gkm_operator.hypernodes.watcher import TopologyWatcher
from gkm_operator.hypernodes.writes.hypernodes import QUIET_SECONDS, HyperNodeWriter
from gkm_operator.hypernodes.writes.replies import ProviderReplies
from gkm_operator.hypernodes.writes.sinks import LabelWriter, TreeSink, write_topology

_LOG = logging.getLogger(__name__)

NAME = "topology"
WORKERS = 6
"""Number of workers: two for sinks with many writes, and four for other work."""
CHECK_SECONDS = 30.0
"""Seconds between two checks whether the needed kinds are installed."""
CALM_SECONDS = 1.0
"""Seconds between a change and the next tree, so that one tree covers several changes."""
LEAST_SECONDS, REST = 2.0, 4.0
"""Minimum pause in seconds between two trees or readings, and the pause as a multiple of the last duration."""
WRITES_BURST, WRITE_SECONDS = 50, 0.02
"""Rate limit of writes of one sink: 50 at once, then 50 a second; labels of 12,500 nodes take 4 minutes."""
BACKOFF = Backoff(0.5, 60.0)
# Both versions have the fields in use; Kueue 0.15 and later serve the newer one.
_KUEUE = (KUEUE_TOPOLOGIES_V1BETA2, KUEUE_TOPOLOGIES)
TREE, REPLIES, REPORT, _PROVIDER = "tree", "replies", "report", "provider/"


class TopologyController(Controller):
    """Builds the tree of topology domains and writes it for schedulers.

    `succeeds` returns whether requests of an earlier leader may be on their way: then HyperNodes are written after
    `quiet_seconds`.
    """

    def __init__(
        self,
        api: Api,
        config: Config,
        *,
        instance: str = "",
        informers: Informers | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        check_seconds: float = CHECK_SECONDS,
        calm_seconds: float = CALM_SECONDS,
        quiet_seconds: float = QUIET_SECONDS,
        succeeds: Callable[[], bool] = lambda: False,
        backoff: Backoff = BACKOFF,
    ) -> None:
        settings = config.topology
        super().__init__(NAME, enabled=settings.makes_tree)
        self._api = api
        self._settings = settings
        self._check_seconds = check_seconds
        self._calm_seconds = calm_seconds
        self._quiet_seconds = quiet_seconds
        self._backoff = backoff
        self._succeeds = succeeds
        self._failures = 0
        self._working = False
        self._rest_until: dict[str, float] = {}
        self._levels = [level.name for level in settings.levels]
        self.queue: WorkQueue[str] = WorkQueue(
            NAME, self._handle, workers=WORKERS, backoff=backoff, observe=metrics.reconcile_recorder(NAME)
        )
        self.watcher = TopologyWatcher(
            api,
            config,
            changed=self._changed,
            tree_changed=self._provider_changed,
            informers=informers if self.enabled else None,
        )
        self.sources = [self._source(name) for name in by_trust(provider.name for provider in settings.providers)]
        self.tree = TreeReconciler(self.watcher, self.sources, settings)
        self.writer = HyperNodeWriter(api, self.watcher, self._levels, pace=self._paced())
        self._labels = LabelWriter(api, self.watcher, pace=self._paced())
        external = [source for source in self.sources if isinstance(source, ProviderSource)]
        self.replies = ProviderReplies(api, self.watcher, external, hashed=settings.hyper_nodes.hash_names)
        self.sinks = self._sinks()
        self.overview = Overview(settings, self.sources, self.tree, self.sinks.values(), self.writer)
        self.report = TopologyReport(api, namespace, instance or NAME, self.overview)
        self.queues = [self.queue]
        if self.enabled:
            for source in self.sources:
                metrics.TOPOLOGY_PROVIDER_LAG.labels(source.name).set_function(source.lag)

    @property
    def is_quiet(self) -> bool:
        """Return whether no write of this or an earlier leader can still arrive.

        A process that writes no HyperNodes need not delay its successor.
        """
        return self.ended and (self.writer.is_quiet or not self._settings.hyper_nodes.enabled)

    def work(self) -> None:
        """Start the controller's thread if the feature is enabled; return at once, even if the API server is down."""
        self.writer.quiet_until = time.monotonic() + self._quiet_seconds * self._succeeds()
        super().work()

    def run(self) -> None:
        """Check at intervals until `stop` which kinds the API server has, and start watches and writers for them."""
        self.repeat(self._check, self._backoff)

    def close_watches(self, seconds: float) -> None:
        """End the controller's watches within `seconds`."""
        self.watcher.close(seconds)

    def _source(self, name: str) -> Source:
        if name == LABELS:
            return LabelSource(self.watcher, self._settings)
        return ProviderSource(name, self.watcher, self._levels)

    def _sinks(self) -> dict[str, TreeSink]:
        settings = self._settings
        found: list[TreeSink] = []
        if settings.hyper_nodes.enabled:
            found.append(TreeSink("hypernodes", "HyperNodesWritten", self._write_hypernodes, [HYPERNODES], "Volcano"))
        if settings.kueue:
            write = partial(write_topology, self._api, topologies.kueue(settings))
            found.append(TreeSink("KueueTopologyWritten", "KueueTopologyWritten", write, _KUEUE, "Kueue"))
        if settings.kai:
            write, kinds = partial(write_topology, self._api, topologies.kai(settings)), [KAI_TOPOLOGIES]
            found.append(TreeSink("KAITopologyWritten", "KAITopologyWritten", write, kinds, "the KAI scheduler"))
        if settings.node_labels:
            found.append(TreeSink("node-labels", "NodeLabelsWritten", self._write_labels))
        return {sink.name: sink for sink in found}

    def _write_labels(self, _kind: object) -> None:
        self._labels.write(lambda: self._approved().labels)

    def _write_hypernodes(self, _kind: object) -> None:
        if not self.watcher.hypernodes.synced.is_set():
            raise Retry("the HyperNodes are not listed yet")
        approved = self._approved()
        try:
            self.writer.write(approved.hypernodes, is_current=lambda: self.tree.approved is approved)
        finally:
            self.replies.refuse(self.writer.refusals, approved.tree)
        if refusals := self.writer.refusals:
            message = f"the API server refuses {count_of(len(refusals), 'HyperNode')}; all others are written"
            raise Blocked(TopologyReason.HYPERNODE_REFUSED, message, detail=listed([*refusals.values()], 3))
        if contested := self.writer.contested:
            message = f"another writer changes {count_of(len(contested), 'HyperNode')} of GKM again after each repair"
            raise Blocked(TopologyReason.HYPERNODE_CONFLICT, message, detail=listed(contested, 3))
        if approved.unlisted:
            raise Blocked(
                TopologyReason.NODE_NAME_TOO_LONG,
                f"{listed(approved.unlisted, 3)}: Volcano accepts no member with a name of more than 63 characters",
            )
        if large := approved.too_large:
            message = (
                f"{count_of(len(large), 'HyperNode')} would be larger than an object can be, and "
                f"{agree(len(large), 'is', 'are')} not written; give the nodes domains at a closer level"
            )
            raise Blocked(TopologyReason.TOO_LARGE, message, detail=listed(large, 5))
        # Last: NoConflicts reports it too, and no other condition has the reasons above.
        if yielding := self.writer.yielding:
            message = (
                f"{count_of(len(yielding), 'HyperNode')} of GKM {agree(len(yielding), 'gives', 'give')} way to "
                "HyperNodes of other sources (NoConflicts): not written, or without members; all others are written"
            )
            raise Blocked(TopologyReason.HYPERNODE_CONFLICT, message, detail=listed(yielding, 3))

    def _approved(self) -> DesiredTrees:
        if (approved := self.tree.approved) is None:
            raise Blocked(TopologyReason.NOT_CHECKED, "no tree is approved yet: ProvidersServing and TreeApproved")
        return approved

    def _paced(self) -> Callable[[], bool]:
        """Return a function that waits for the next request of a sink, and returns False once this process ends."""
        bucket = TokenBucket(WRITES_BURST, WRITE_SECONDS)

        def pace() -> bool:
            return not self._stop.wait(bucket.reserve())

        return pace

    def _changed(self) -> None:
        """Schedule what reads the watches."""
        if any(source.name == LABELS for source in self.sources):
            self.queue.add(_PROVIDER + LABELS, self._calm_seconds)
        self.queue.add(TREE, self._calm_seconds)

    def _provider_changed(self, name: str) -> None:
        """Schedule what reads a ProviderTree."""
        if any(source.name == name for source in self.sources):
            self.queue.add(_PROVIDER + name, self._calm_seconds)
        else:
            self.queue.add(REPLIES, self._calm_seconds)

    def _handle(self, key: str) -> float | None:
        try:
            if key == REPORT:
                self.overview.record()
                return self.report.write(time.monotonic())
            if key == TREE:
                return self._at_pace(key, self._reconcile_tree)
            if key.startswith(_PROVIDER):
                return self._at_pace(key, lambda: self._refresh(key.removeprefix(_PROVIDER)))
            if key != REPLIES:
                return self.sinks[key].reconcile()
            self.replies.write()
        finally:
            if key not in (REPORT, REPLIES):
                self.queue.add(REPORT, self._calm_seconds)
                self.queue.add(REPLIES, self._calm_seconds)
        return None

    def _at_pace(self, key: str, act: Callable[[], float | None]) -> float | None:
        """Act unless the last call was too recent; return the seconds until the next call, None if no call is due."""
        began = time.monotonic()
        if (rest := self._rest_until.get(key, 0.0) - began) > 0:
            return rest
        after = act()
        ended = time.monotonic()
        self._rest_until[key] = ended + max(LEAST_SECONDS, REST * (ended - began))
        return after

    def _refresh(self, name: str) -> None:
        if next(source for source in self.sources if source.name == name).refresh():
            self.queue.add(TREE)

    def _reconcile_tree(self) -> float | None:
        after = self.tree.reconcile(time.monotonic())
        for name in self.sinks:
            self.queue.add(name)
        return after

    def _check(self) -> float:
        answers = [sink.check(self._api) for sink in self.sinks.values()]
        self._failures = 0 if all(answers) else self._failures + 1
        if self._failures:
            _LOG.warning(
                "API server does not answer whether a topology kind is served, asked again",
                extra=fields(failures=self._failures),
            )
        self._use()
        pause = self._backoff.pause(self._failures) if self._failures else self._check_seconds
        return min(pause, self._check_seconds)

    def _use(self) -> None:
        """Use what a check found; the queue starts once, when every list is complete."""
        hypernodes = self.sinks.get("hypernodes")
        self.watcher.start(hypernodes=hypernodes is not None and hypernodes.available)
        if not self._working:
            if not self.wait(lambda: self.watcher.synced, self._check_seconds):
                return
            self._working = True
            self.start_queues()
            self._changed()
            for source in self.sources:
                self.queue.add(_PROVIDER + source.name)
        # Topologies are not watched, and what was refused may be allowed now.
        for name in (TREE, *self.sinks, REPORT):
            self.queue.add(name)
