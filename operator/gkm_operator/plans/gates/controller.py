"""The controller of gates: a queue of runs whose pods wait for a plan. Runs in the leader only.

One request gives a pod its node and removes the gate, and only while the pod is as the watch showed it: so no crash and
no second leader leaves a pod half placed. A pod that has started is never written (docs/decisions/0044).
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial

from gkm.api.features import Feature, install
from gkm.api.topology_settings import Packing
from gkm.hoststate.logs import fields
from gkm.hoststate.lru import LRUCache
from gkm.hoststate.pacing import Backoff
from gkm.kube.api import Api, Object
from gkm.kube.controller import Controller
from gkm.kube.errors import ApiError
from gkm.kube.index import Index
from gkm.kube.informers import Informers
from gkm.kube.workqueue import Retry, WorkQueue

from gkm_operator import metrics
from gkm_operator.nodes import NODES
from gkm_operator.plans.gates.decisions import GateDecision, GateRules, Lift, decide
from gkm_operator.plans.gates.slots import PlacedPod
from gkm_operator.plans.state.objects import PodsReport, RunKey, WatchedPlan, WatchedRun, no_reports
from gkm_operator.plans.state.watcher import ClusterWatcher
from gkm_operator.pods import HOSTNAME, PODS, WatchedPod, is_of_run

_LOG = logging.getLogger(__name__)
NAME = "gates"
WORKERS = 4
REQUESTS = 4
"""Number of concurrent requests for the pods of one run."""
CALM_SECONDS = 0.2
"""Seconds between a change and the next pass, because the pods of a workload are created together."""
BACKOFF = Backoff(0.5, 60.0)
_MAX_REPORTS = _MAX_SENT = 65_536


class RunPodIndex:
    """Indexes pods by Run. A node that was sent for a pod is remembered until the watch shows the pod without its gate.

    Without this memory, a pod that comes between a request and its change in the watch could get the same place.
    """

    def __init__(self) -> None:
        self._pods: Index[RunKey, WatchedPod] = Index(lambda pod: (_run(pod),), lambda pod: pod.metadata.name)
        self._sent: LRUCache[str, tuple[str, str]] = LRUCache(_MAX_SENT)

    def change(self, old: WatchedPod | None, new: WatchedPod | None) -> set[RunKey]:
        """Update the index after a change of a pod; return the Runs that it concerns."""
        self._pods.change(old, new)
        return {_run(pod) for pod in (old, new) if pod is not None}

    def of(self, run: RunKey, plan: str, node_of: Callable[[str], str]) -> list[PlacedPod]:
        """Return the pods of a Run; `node_of` returns the node with a value of the label kubernetes.io/hostname.

        A place of another plan does not count: if it was written all the same, the next request is a conflict.
        """
        return [self._placed(pod, plan, node_of) for pod in self._pods.get(run)]

    def send(self, uid: str, plan: str, node: str) -> None:
        """Remember the planned node of a pod before the request that sets it; "" after the request failed."""
        self._sent.put(uid, (plan, node))

    def _placed(self, pod: WatchedPod, plan: str, node_of: Callable[[str], str]) -> PlacedPod:
        if (facts := pod.of_run) is None:
            raise AssertionError("a pod that belongs to no run was selected")
        sent_for, sent = self._sent.get(facts.uid) or ("", "")
        written = node_of(facts.hostname) if facts.hostname else ""
        node = pod.node or written or (sent if facts.gated and sent_for == plan else "")
        return PlacedPod(pod.metadata.name, facts, node, bool(pod.node))


def _run(pod: WatchedPod) -> RunKey:
    return RunKey(pod.metadata.namespace, pod.metadata.run)


class GatesController(Controller):
    """Removes the scheduling gates of Runs' pods once a plan has a node for them. It runs if `packing.podGates`."""

    def __init__(self, api: Api, settings: Packing, *, informers: Informers, calm: float = CALM_SECONDS) -> None:
        super().__init__(NAME, enabled=settings.pod_gates)
        self._api = api
        self._wait = settings.pod_gate_wait
        self._calm = calm
        self._pods = RunPodIndex()
        self._reports: LRUCache[RunKey, PodsReport] = LRUCache(_MAX_REPORTS)
        self._nodes = informers.of(NODES)
        self._selected = informers.select(PODS, self._pod_changed, wants=is_of_run)
        self._runs: ClusterWatcher | None = None
        self._reported: Callable[[], None] = lambda: None
        observe = metrics.reconcile_recorder(NAME)
        self.queue: WorkQueue[RunKey] = WorkQueue(
            NAME, self.reconcile, workers=WORKERS, backoff=BACKOFF, group=lambda key: key.namespace, observe=observe
        )
        self.queues = [self.queue]

    def report(self, run: RunKey) -> PodsReport | None:
        """Return whether the pods of a Run are on their planned nodes; None before the first look at them."""
        return self._reports.get(run) if self.enabled else no_reports(run)

    def follow(self, runs: ClusterWatcher, reported: Callable[[], None]) -> None:
        """Use the Runs and plans that another controller watches; `reported` is called after each new report."""
        self._runs, self._reported = runs, reported

    def run(self) -> None:
        """Start the watches and wait for complete lists, then remove gates: an unlisted Run must not look deleted."""
        if self._runs is None or not self.wait(self._is_listed):
            return
        self.watches.start(self._selected)
        if self.wait(self._selected.synced.is_set):
            self._runs.subscribe(self._run_changed, self._plan_changed)
            self.start_queues()

    def _is_listed(self) -> bool:
        return self._runs is not None and self._runs.listed

    def reconcile(self, run: RunKey) -> float | None:
        """Remove the gates of a Run's pods that have a planned node.

        Return the seconds until the next pod may start without one.

        Raises:
            Retry: a request failed, or the Run cannot be read.
            NotLeading: this process must not write any more.
        """
        decision = self._decide(run)
        if decision.report != self._reports.get(run):
            self._reports.put(run, decision.report)
            self._reported()
        if failed := self._lift_all(run, decision.lifts):
            raise Retry(str(failed[0]), failed[0].retry_after)
        return decision.again

    def _decide(self, run: RunKey) -> GateDecision:
        if self._runs is None or self._runs.is_unreadable(run):
            raise Retry(f"Run {run} cannot be read: its pods wait")
        found = self._runs.run(run)
        plan = None if found is None else self._runs.plan(found)
        rules = GateRules(self._wait, found is None or found.spec.on_no_plan == "release")
        names = {} if plan is None else {hostname: node for node in plan.claims if (hostname := self._hostname(node))}
        sent_for = "" if plan is None else plan.name
        pods, now = self._pods.of(run, sent_for, lambda hostname: names.get(hostname, hostname)), datetime.now(UTC)
        return decide(plan, pods, rules, self._hostname, now)

    def _hostname(self, node: str) -> str:
        found = self._nodes.get(node)
        return "" if found is None else found.labels.get(HOSTNAME, "")

    def _lift_all(self, run: RunKey, lifts: Sequence[Lift]) -> list[ApiError]:
        """Remove gates side by side, since the pods of a gang start with the last one; return the errors."""
        if not lifts:
            return []
        with ThreadPoolExecutor(min(REQUESTS, len(lifts)), "gate") as pool:
            return [error for error in pool.map(partial(self._lift, run), lifts) if error is not None]

    def _lift(self, run: RunKey, lift: Lift) -> ApiError | None:
        """Remove a gate; return an error after which the next pass tries again."""
        facts, log_fields = lift.pod.facts, fields(run=str(run), pod=lift.pod.name, node=lift.node or None)
        self._pods.send(facts.uid, lift.plan, lift.node)
        try:
            self._api.merge(PODS, lift.pod.name, lift_patch(lift), run.namespace)
        except ApiError as error:
            if error.not_found or error.conflict:
                self._pods.send(facts.uid, "", "")
                return None
            hint = f": {install(Feature.POD_GATES)}" if error.forbidden else ""
            _LOG.warning(
                "scheduling gate of a pod not removed, tried again", extra=log_fields | fields(why=f"{error}{hint}")
            )
            return error
        _LOG.info("scheduling gate of a pod removed", extra=log_fields)
        return None

    def _pod_changed(self, old: WatchedPod | None, new: WatchedPod | None) -> None:
        for run in self._pods.change(old, new):
            self.queue.add(run, self._calm)

    def _run_changed(self, old: WatchedRun | None, new: WatchedRun | None) -> None:
        if (run := new or old) is not None:
            self.queue.add(run.key)

    def _plan_changed(self, old: WatchedPlan | None, new: WatchedPlan | None) -> None:
        if (plan := new or old) is not None:
            self.queue.add(RunKey(plan.metadata.namespace, plan.spec.run))


def lift_patch(lift: Lift) -> Object:
    """Return the merge patch that sets a pod's node and removes its gate, valid only for the version that was read.

    Ours is the only gate that is left, so the patch can remove the list.
    """
    facts = lift.pod.facts
    selector = {"nodeSelector": {HOSTNAME: lift.hostname}} if lift.hostname else {}
    return {
        "metadata": {"uid": facts.uid, "resourceVersion": facts.version},
        "spec": {"schedulingGates": None} | selector,
    }
