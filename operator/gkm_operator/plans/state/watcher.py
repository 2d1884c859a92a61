"""What is watched for planning, and the snapshots that are taken of it."""

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from threading import Event
from typing import Any

from gkm.api.topology_settings import Topology
from gkm.kube.api import Api
from gkm.kube.reflector import Reflector
from gkm.topology.nodes import Node
from gkm.topology.quarantine import Quarantined, QuarantineReason
from gkm.topology.survey import TopologySurvey, survey_nodes

from gkm_operator import metrics
from gkm_operator.plans.planning.refusals import flavors_of
from gkm_operator.plans.state.node_loss import NodeIndex
from gkm_operator.plans.state.objects import (
    NODES,
    PLACED_PODS,
    PLANS,
    PODS,
    RUNS,
    RunKey,
    WatchedPlan,
    WatchedPod,
    WatchedRun,
)
from gkm_operator.plans.state.plan_index import PlanIndex
from gkm_operator.plans.state.pod_usage import PodUsageIndex
from gkm_operator.plans.state.snapshot import ClusterSnapshot

_POLL_SECONDS = 0.05


class PodsUnread(RuntimeError):
    """A pod cannot be read, and nobody knows on which node: nothing can be planned beside it."""


class ClusterWatcher:
    """Four reflectors; `changed` is called for whatever may change a decision. Nodes and pods wait for a first Run."""

    def __init__(self, api: Api, book: PlanIndex, settings: Topology, changed: Callable[[], None]) -> None:
        self._book = book
        self._settings = settings
        self._changed = changed
        self._ledger = PodUsageIndex()
        self._versions = count(1)
        self._version = 0
        self._nodes_version = 0
        self._surveyed: tuple[object, TopologySurvey, dict[str, str]] | None = None
        self._plans = Reflector(api, PLANS, self._plan_changed)
        self._runs = Reflector(api, RUNS, self._run_changed)
        self._nodes = Reflector(api, NODES, self._node_changed)
        self._pods = Reflector(api, PODS, self._pod_changed, selector=PLACED_PODS)
        self._started: list[Reflector[Any]] = []

    def start(self, stop: Event) -> bool:
        """List plans, then runs: a plan without a Run has lost it then. Return False when `stop` is set before."""
        return self._start(self._plans, stop) and self._start(self._runs, stop)

    def list_nodes_and_pods(self, stop: Event) -> bool:
        """List nodes and pods, unless that was done; return False when `stop` is set before."""
        return all(self._start(reflector, stop) for reflector in (self._nodes, self._pods))

    def close(self, seconds: float) -> None:
        """End."""
        for reflector in self._started:
            reflector.close(seconds)

    @property
    def any_runs(self) -> bool:
        """Return whether there is a Run."""
        return bool(self._runs.values())

    def snapshot(self, now: datetime | None = None) -> ClusterSnapshot:
        """Return what there is.

        Raises:
            PodsUnread: as it says.
        """
        unread = frozenset(RunKey(*key) for key in self._runs.unreadable)
        # Before what is counted: a change in between makes it another version too often, never too seldom.
        version = self._version
        surveyed, flavored = self._survey()
        runs = self._runs.values()
        taken = self._ledger.usage()
        # A pod that was read before counts as it was then.
        if unknown := [key for key in self._pods.unreadable if self._pods.get(key[1], key[0]) is None]:
            raise PodsUnread(f"pod {'/'.join(min(unknown))} cannot be read: nothing is planned beside it")
        nodes = NodeIndex(surveyed, taken.usage.faults)
        moment = now or datetime.now(UTC)
        return ClusterSnapshot(moment, runs, unread, self._book.plans(), taken, nodes, flavored, version)

    def _survey(self) -> tuple[TopologySurvey, dict[str, str]]:
        """Return the survey of all nodes, anew only where one changed."""
        unread = self._nodes.unreadable
        wanted = (self._nodes_version, unread)
        if self._surveyed is None or self._surveyed[0] != wanted:
            names = {name for _, name in unread}
            nodes = [node for node in self._nodes.values() if node.name not in names]
            aside = [Quarantined(name, QuarantineReason.UNREADABLE, "it cannot be read") for name in sorted(names)]
            found = survey_nodes(nodes, self._settings, aside)
            self._surveyed = wanted, found, flavors_of(nodes, self._settings.labels)
            self._another_version()
            metrics.record_survey(len(found.located), len(found.quarantined), len(found.bare))
        return self._surveyed[1], self._surveyed[2]

    def _start(self, reflector: Reflector[Any], stop: Event) -> bool:
        if reflector not in self._started:
            self._started.append(reflector)
            reflector.start()
        while not reflector.synced.is_set():
            if stop.wait(_POLL_SECONDS):
                return False
        return True

    def _another_version(self) -> None:
        # Told by several threads: each number is given once, so that no two contents ever share one.
        self._version = next(self._versions)

    def _run_changed(self, old: WatchedRun | None, new: WatchedRun | None) -> None:
        # Our own writes of its status are no news.
        if old is None or new is None or _request_of(old) != _request_of(new):
            self._changed()

    def _plan_changed(self, old: WatchedPlan | None, new: WatchedPlan | None) -> None:
        self._book.change(old, new)
        # Our own writes of its status are no news.
        if old is None or new is None or not old.decides_as(new):
            self._changed()

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        # kubelets write the status of every Node again and again: what is not read of it ends here.
        if old != new:
            self._nodes_version += 1
            self._another_version()
            self._changed()

    def _pod_changed(self, old: WatchedPod | None, new: WatchedPod | None) -> None:
        if self._ledger.change(old, new):
            self._another_version()
            self._changed()


def _request_of(run: WatchedRun) -> object:
    meta = run.metadata
    return meta.uid, meta.generation, run.spec, meta.annotations, meta.deletion_timestamp
