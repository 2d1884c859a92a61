"""The state of the cluster for one pass, and a search for plans that claim the same GPUs. Pure."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gkm.packing.conversion import pod_of
from gkm.topology.eligibility import PodDemand

from gkm_operator.plans.state.free_capacity import PodUsage, Reservations, excess
from gkm_operator.plans.state.node_loss import NodeIndex
from gkm_operator.plans.state.objects import PlanRecord, RunKey, WatchedRun


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Runs with their plans, and nodes with the GPUs that pods use, at one moment, for one planning pass.

    `unread` are Runs that exist and cannot be read: their plans count.
    `version` changes with nodes, pods, ResourceClaims and the topology tree.
    """

    now: datetime
    runs: Sequence[WatchedRun]
    unread: frozenset[RunKey]
    plans: Mapping[RunKey, Sequence[PlanRecord]]
    pods: PodUsage
    nodes: NodeIndex
    version: int

    def current(self, run: WatchedRun) -> PlanRecord | None:
        """Return the newest plan of a Run, None without one; plans of an earlier Run of the same name are ignored."""
        own = [plan for plan in self.plans.get(run.key, ()) if plan.owner == run.metadata.uid]
        return max(own, key=lambda plan: plan.number, default=None)

    def live(self) -> dict[RunKey, tuple[PlanRecord, int]]:
        """Return the plans that have not expired, each with the priority of its Run."""
        found = {}
        for run in self.runs:
            plan = self.current(run)
            if plan is not None and run.metadata.deletion_timestamp is None and not plan.expired(self.now):
                found[run.key] = plan, run.spec.priority
        for key in self.unread - found.keys():
            plans = self.plans.get(key, ())
            if plans and not plans[-1].expired(self.now):
                found[key] = plans[-1], 0
        return found

    def reserved(self, live: Mapping[RunKey, tuple[PlanRecord, int]]) -> Reservations:
        """Return the GPUs that live plans reserve for their Runs."""
        reserved = {key: excess(plan.claims, self.pods.of(key)) for key, (plan, _) in live.items()}
        pods = {run.key: _pod_of(run) for run in self.runs if reserved.get(run.key)}
        return Reservations(reserved, pods)

    def held(self, run: RunKey) -> Mapping[str, int]:
        """Return the GPUs that pods of a Run use on each existing node, without terminating pods."""
        return self.nodes.existing(self.pods.held(run))


def _pod_of(run: WatchedRun) -> PodDemand | None:
    """Return one pod of a run, None if its requests are invalid, which the rules of the CRD prevent."""
    try:
        return pod_of(run.spec)
    except ValueError:
        return None


def double_allocations(
    live: Mapping[RunKey, tuple[PlanRecord, int]],
    totals: Mapping[str, int],
    held: Callable[[RunKey], Mapping[str, int]] = lambda _run: {},
) -> dict[RunKey, str]:
    """Return the Runs whose plans claim GPUs that another Run has already, with a message for each.

    GPUs that pods of a run hold are its own. The run with the higher priority gets the others, then the run with the
    older plan: users with the right to delete plans could restore a superseded one. `totals` are the GPUs of each node,
    `held` returns the GPUs that pods of a run hold, by node.
    """
    order = sorted(live.items(), key=lambda item: (-item[1][1], item[1][0].created or "~", item[0]))
    claimants = Counter(node for plan, _ in live.values() for node in plan.claims)
    shared = {node for node, runs in claimants.items() if runs > 1}
    claims = {run: {node: plan.claims[node] for node in shared & plan.claims.keys()} for run, (plan, _) in order}
    allotted = _Allotment(totals)
    reserved = {run: excess(gpus, held(run)) for run, gpus in claims.items() if gpus}
    for run, waiting in reserved.items():
        allotted.take(run, {node: gpus - waiting.get(node, 0) for node, gpus in claims[run].items()})
    found = {}
    for run, gpus_by_node in reserved.items():
        if over := allotted.short_of(run, gpus_by_node):
            # The message names no run: it may be of a namespace that users of this one must not see.
            found[run] = f"another run has GPUs of node {over} too"
        else:
            allotted.take(run, gpus_by_node)
    return found


class _Allotment:
    """The GPUs of nodes that are still free, and the runs that have others of them."""

    def __init__(self, totals: Mapping[str, int]) -> None:
        self._free = dict(totals)
        self._owners: dict[str, set[RunKey]] = {}

    def take(self, run: RunKey, gpus_by_node: Mapping[str, int]) -> None:
        """Give GPUs to a run."""
        for node, gpus in gpus_by_node.items():
            if gpus and node in self._free:
                self._free[node] -= gpus
                self._owners.setdefault(node, set()).add(run)

    def short_of(self, run: RunKey, gpus_by_node: Mapping[str, int]) -> str:
        """Return the first node that has too few GPUs left because other runs have some, "" if all have enough."""
        short = (node for node, gpus in gpus_by_node.items() if gpus > self._free.get(node, gpus))
        return min((node for node in short if self._owners.get(node, set()) - {run}), default="")
