"""The watches that planning needs, and the snapshots of their state."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import count
from threading import Event

from gkm.api.topology_settings import Topology
from gkm.kube.api import Api
from gkm.kube.controller import StartedWatch, WatchSet
from gkm.kube.discovery import is_served
from gkm.kube.informers import Informers
from gkm.kube.reflector import OnChange, OnRefused, Reflector, no_report
from gkm.topology.claims import ResourceClaim
from gkm.topology.labels import label_placements
from gkm.topology.nodes import Node
from gkm.topology.providers import LABELS
from gkm.topology.quarantine import Quarantined, QuarantineReason
from gkm.topology.survey import TopologySurvey, survey_nodes
from gkm.topology.trees.merge import Named

from gkm_operator import metrics
from gkm_operator.nodes import NODES
from gkm_operator.plans.state.free_capacity import CLAIMED, PodUsageIndex, with_claimed_gpus
from gkm_operator.plans.state.node_loss import NodeIndex
from gkm_operator.plans.state.objects import PLANS, RUNS, PlanIndex, PlanRecord, RunKey, WatchedPlan, WatchedRun
from gkm_operator.plans.state.snapshot import ClusterSnapshot
from gkm_operator.pods import PODS, WatchedPod, occupies_node

_POLL_SECONDS = 0.05
_CLAIMS_AGAIN_SECONDS = 600.0
"""Seconds between two checks whether ResourceClaims (resource.k8s.io/v1, Kubernetes 1.34) are served."""


class PodsUnread(RuntimeError):
    """A pod cannot be decoded and its node is unknown, so that no node has a known number of free GPUs."""


class TopologyUnread(RuntimeError):
    """The topology tree is not approved yet, so that nodes have no known location."""


class ClusterWatcher:
    """The watches for planning; `changed` is called after each change that matters, `requested` after changes of Runs.

    Nodes, pods and ResourceClaims are watched from the first Run on. `sources` returns the placements of the tree that
    the schedulers see, None before the first tree; without it, labels alone place nodes.
    """

    def __init__(
        self,
        api: Api,
        index: PlanIndex,
        settings: Topology,
        changed: Callable[[], None],
        requested: Callable[[], None],
        *,
        informers: Informers,
        on_refused: OnRefused = no_report,
        sources: Callable[[], Named | None] | None = None,
    ) -> None:
        self._index = index
        self._sources = sources
        self._settings = settings
        self._changed = changed
        self._requested = requested
        self._pod_usage = PodUsageIndex()
        self._versions = count(1)
        self._version = 0
        self._nodes_version = 0
        self._surveyed: tuple[object, TopologySurvey] | None = None
        self._plans = Reflector(api, PLANS, self._plan_changed)
        self._runs = Reflector(api, RUNS, self._run_changed, on_refused=on_refused)
        self._nodes = informers.of(NODES)
        self._surveys_nodes = False
        self._pods = informers.select(PODS, self._pod_changed, wants=occupies_node)
        self._api = api
        self._claims = Reflector(api, CLAIMED, self._claim_changed, retain=lambda claim: bool(claim.held))
        self._claims_asked = -_CLAIMS_AGAIN_SECONDS
        self._watches = WatchSet()

    def start(self, stop: Event) -> bool:
        """List nodes, plans and then Runs, so that no plan looks orphaned; return False if `stop` is set first."""
        return all(self._start(reflector, stop) for reflector in (self._nodes, self._plans, self._runs))

    def list_nodes_and_pods(self, stop: Event) -> bool:
        """List pods and ResourceClaims and subscribe to Nodes, once; return False if `stop` is set first."""
        if not self._surveys_nodes:
            self._surveys_nodes = True
            self._nodes.subscribe(self._node_changed)
        return self._start(self._pods, stop) and (not self._claims_served() or self._start(self._claims, stop))

    def _claims_served(self) -> bool:
        """Return whether ResourceClaims are watched, or the API server has them; it is asked every ten minutes."""
        if self._claims.synced.is_set():
            return True
        if time.monotonic() < self._claims_asked + _CLAIMS_AGAIN_SECONDS:
            return False
        served = is_served(self._api, CLAIMED)
        self._claims_asked = time.monotonic()
        return served

    def close(self, seconds: float) -> None:
        """Stop the watches within `seconds`."""
        self._watches.close(seconds)

    @property
    def any_runs(self) -> bool:
        """Return whether the watch has shown any Run."""
        return self._surveys_nodes or bool(self._runs.values())

    @property
    def listed(self) -> bool:
        """Return whether the watches of Runs, PlacementPlans and Nodes have complete lists."""
        return all(watch.synced.is_set() for watch in (self._runs, self._plans, self._nodes))

    def is_unreadable(self, run: RunKey) -> bool:
        """Return whether a Run exists but cannot be decoded."""
        return run in self._runs.unreadable

    def run(self, key: RunKey) -> WatchedRun | None:
        """Return a Run that is not being deleted; None if the watch has no such Run."""
        found = self._runs.get(key.name, key.namespace)
        return None if found is None or found.metadata.deletion_timestamp is not None else found

    def plan(self, run: WatchedRun) -> PlanRecord | None:
        """Return the newest stored plan of a Run, None if absent."""
        return self._index.newest_stored(run.key, run.metadata.uid)

    def subscribe(self, run_changed: OnChange[WatchedRun], plan_changed: OnChange[WatchedPlan]) -> None:
        """Subscribe to changes of Runs and plans; the callbacks first get the existing Runs and plans."""
        self._runs.subscribe(run_changed)
        self._plans.subscribe(plan_changed)

    def snapshot(self) -> ClusterSnapshot:
        """Return the state of the cluster for a planning pass.

        Raises:
            PodsUnread: a pod on an unknown node, or a ResourceClaim, cannot be read.
            TopologyUnread: no tree is approved yet.
        """
        unread = frozenset(RunKey(*key) for key in self._runs.unreadable)
        # Read first: a change in between then gives one state two versions, never two states one version.
        version = self._version
        surveyed = self._survey()
        runs = self._runs.values()
        usage = with_claimed_gpus(self._pod_usage.usage(), self._claims.values(), self._pods.get)
        # A pod that was readable before is used as it was then.
        if unknown := [key for key in self._pods.unreadable if self._pods.get(key[1], key[0]) is None]:
            raise PodsUnread(f"pod {'/'.join(min(unknown))} cannot be read, so no run can be planned")
        if claims := self._claims.unreadable:
            raise PodsUnread(f"ResourceClaim {'/'.join(min(claims))} cannot be read, so no run can be planned")
        nodes = NodeIndex(surveyed, usage.usage.faults)
        now = datetime.now(UTC)
        return ClusterSnapshot(now, runs, unread, self._index.plans(), usage, nodes, version)

    def _survey(self) -> TopologySurvey:
        """Return the survey of all nodes, cached while no node and no source changes."""
        unread = self._nodes.unreadable
        sources = self._approved()
        wanted = (self._nodes_version, unread, sources)
        if self._surveyed is None or self._surveyed[0] != wanted:
            names = {name for _, name in unread}
            nodes = [node for node in self._nodes.values() if node.name not in names]
            unreadable = [Quarantined(name, QuarantineReason.UNREADABLE, "it cannot be read") for name in sorted(names)]
            found = survey_nodes(nodes, self._settings, unreadable, self._current(sources, nodes))
            self._surveyed = wanted, found
            self._advance_version()
            metrics.record_survey(len(found.located), len(found.quarantined), len(found.bare))
        return self._surveyed[1]

    def _approved(self) -> Named | None:
        if self._sources is None:
            return None
        if (approved := self._sources()) is None:
            raise TopologyUnread(
                "no tree of the topology is approved yet: "
                "kubectl get configmap gkm-topology -n gkm-system -o yaml says what it waits for"
            )
        return approved

    def _current(self, sources: Named | None, nodes: Sequence[Node]) -> Named | None:
        """Return the sources of the tree; nodes that are newer than it are where their labels place them."""
        if sources is None:
            return None
        fresh = label_placements(nodes, self._settings)
        return [(name, placed.completed(fresh) if name == LABELS else placed) for name, placed in sources]

    def _start(self, reflector: StartedWatch, stop: Event) -> bool:
        self._watches.start(reflector)
        while not reflector.synced.wait(_POLL_SECONDS):
            if stop.is_set():
                return False
        return True

    def _advance_version(self) -> None:
        # Several threads call it: `next` returns each number once, so different states never share one.
        self._version = next(self._versions)

    def _run_changed(self, old: WatchedRun | None, new: WatchedRun | None) -> None:
        # The controller itself writes the status.
        if old is None or new is None or _request_of(old) != _request_of(new):
            self._requested()

    def _plan_changed(self, old: WatchedPlan | None, new: WatchedPlan | None) -> None:
        self._index.change(old, new)
        # The controller itself writes the status.
        if old is None or new is None or not old.is_equal_but_status(new):
            self._changed()

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        # kubelets update the status of every Node all the time: most updates change no field that is read.
        if old != new:
            self._nodes_version += 1
            self._advance_version()
            self._changed()

    def _pod_changed(self, old: WatchedPod | None, new: WatchedPod | None) -> None:
        if self._pod_usage.change(old, new) or self._changes_load(old, new):
            self._advance_version()
            self._changed()

    def _claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        if old != new:
            self._advance_version()
            self._changed()

    def _changes_load(self, old: WatchedPod | None, new: WatchedPod | None) -> bool:
        """Return whether a change of a pod changes what is free on a node with GPUs; pods elsewhere come and go."""
        nodes = {pod.node: pod.load for pod in (old, new) if pod is not None and pod.node}
        if old is not None and new is not None and (old.node, old.load) == (new.node, new.load):
            return False
        return any((node := self._nodes.get(name)) is not None and node.gpus is not None for name in nodes)


def _request_of(run: WatchedRun) -> object:
    meta = run.metadata
    return meta.uid, meta.generation, run.text, meta.annotations, meta.deletion_timestamp
