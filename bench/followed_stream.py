"""One stream of runs, answered by GKM's controllers and by Kueue's scheduler on the same nodes, by turns.

Runs that end and runs that come are applied in the order of the stream's clock, one at a time: a system gets the time
that it needs, and no run waits for another. A run that is refused for two seconds is lost.
"""

import heapq
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Generic, Protocol, TypeVar

from gkm.api.node_names import unfold
from gkm.kube.resources import Json
from packing_stream_runs import DOMAINS, NODE_GPUS, NODES_A_DOMAIN, Arrival, arrivals
from support.cluster.cluster import Cluster
from support.host.waiting import until
from support.operator.plans_site import NAMESPACE, Site
from support.topology.kueue_cluster import GPU, QUEUE

PATIENCE_SECONDS = 2.0
T = TypeVar("T")
_KUEUE = "kueue.x-k8s.io/v1beta2"


@dataclass(frozen=True)
class Answer(Generic[T]):
    """What one look at a request shows: a place, a refusal that may still change, or neither yet."""

    found: T | None
    is_refused: bool


class Planner(Protocol):
    """A system that decides where the groups of a run go."""

    def place(self, name: str, run: Arrival) -> list[int] | None:
        """Ask for a run; return the numbers of its nodes, None if it is refused. A refused run is gone then."""

    def end(self, name: str) -> None:
        """Give the nodes of a run back."""


@dataclass
class Tally:
    """Sums over the runs after the warm-up."""

    offered: float = 0.0
    rejected: float = 0.0
    domains: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def row(self) -> dict[str, float]:
        """Return the figures."""
        return {
            "rejected_percent": 100 * self.rejected / self.offered,
            "domains_a_run": mean(self.domains),
            "answer_s": mean(self.seconds),
        }


def stream(planner: Planner, domains: int, load: float, count: int) -> Tally:
    """Answer a stream on an empty cluster and end all its runs; a quarter of `count` fills the cluster before.

    Raises:
        AssertionError: a run got nodes of another one, or a part of a group.
    """
    warm_up = count // 4
    tally, ends, used = Tally(), list[tuple[float, int, list[int]]](), set[int]()
    for number, run in enumerate(arrivals(1, load * domains / DOMAINS, warm_up, count)):
        while ends and ends[0][0] <= run.at:
            _, ended, nodes = heapq.heappop(ends)
            planner.end(_name(ended))
            used.difference_update(nodes)
        began = time.monotonic()
        taken = planner.place(_name(number), run)
        seconds = time.monotonic() - began
        if taken is not None:
            _check(run, taken, used)
            used.update(taken)
            heapq.heappush(ends, (run.at + run.holding, number, taken))
        if number >= warm_up:
            tally.offered += run.gpu_hours
            tally.rejected += 0 if taken is not None else run.gpu_hours
            if taken is not None:
                tally.domains.append(len(_by_domain(taken)))
                tally.seconds.append(seconds)
    for _, ended, _ in ends:
        planner.end(_name(ended))
    return tally


def _name(number: int) -> str:
    return f"stream-{number:05}"


def _by_domain(nodes: Iterable[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for node in nodes:
        found[node // NODES_A_DOMAIN] = found.get(node // NODES_A_DOMAIN, 0) + 1
    return found


def _check(run: Arrival, taken: Sequence[int], used: set[int]) -> None:
    assert len(set(taken)) == run.nodes, f"{run} got {sorted(taken)}"
    assert used.isdisjoint(taken), f"{run} got nodes of others: {sorted(used & set(taken))}"
    assert not any(count % run.size.nodes for count in _by_domain(taken).values()), f"{run} got parts of groups"


def _numbers(names: Iterable[str]) -> list[int]:
    return [int(name.removeprefix("node-")) for name in names]


@dataclass(frozen=True)
class GkmPlanner:
    """The controllers: a Run, and its PlacementPlan."""

    site: Site

    def place(self, name: str, run: Arrival) -> list[int] | None:
        """Create a Run and read its plan."""
        self.site.ask(name, run.nodes * NODE_GPUS, gpusPerPod=NODE_GPUS, groupGPUs=run.size.nodes * NODE_GPUS)
        plan = _until_answered(lambda: self._read(name))
        if plan is None:
            self.end(name)
            return None
        found = self.site.cluster.get("placementplan", plan, NAMESPACE)["spec"]["groups"]
        return _numbers(node for group in found for share in group["nodes"] for node in unfold(share["name"]))

    def end(self, name: str) -> None:
        """Delete the Run."""
        self.site.cluster.objects.delete_patiently("run", name, NAMESPACE)

    def _read(self, name: str) -> Answer[str]:
        reason, plan = self.site.condition(name)
        return Answer(plan or None, is_refused=bool(reason) and not plan)


@dataclass(frozen=True)
class KueuePlanner:
    """Kueue: a Workload without pods, and the topology assignment of its admission."""

    cluster: Cluster

    def place(self, name: str, run: Arrival) -> list[int] | None:
        """Create a Workload of slices, one for each group, that prefers one block; read its assignment."""
        self.cluster.objects.create(_workload(name, run))
        admission = _until_answered(lambda: self._read(name))
        if admission is None:
            self.end(name)
            return None
        (pods,) = admission["podSetAssignments"]
        return _numbers(assigned_nodes(pods["topologyAssignment"]))

    def end(self, name: str) -> None:
        """Delete the Workload."""
        self.cluster.objects.delete_patiently("workload", name, "default")

    def _read(self, name: str) -> Answer[Json]:
        status: Json = self.cluster.get("workload", name, "default").get("status", {})
        waiting = ("QuotaReserved", "False")
        is_refused = any((one["type"], one["status"]) == waiting for one in status.get("conditions", ()))
        return Answer(status.get("admission"), is_refused)


def assigned_nodes(assignment: Json) -> list[str]:
    """Return the nodes of a topology assignment of one pod a node, whose lowest level is the host name."""
    return [name for part in assignment["slices"] for name in _values(part["valuesPerLevel"][-1], part["domainCount"])]


def _values(level: Json, count: int) -> list[str]:
    if (value := level.get("universal")) is not None:
        return [value] * count
    found = level["individual"]
    return [f"{found.get('prefix', '')}{root}{found.get('suffix', '')}" for root in found["roots"]]


def _workload(name: str, run: Arrival) -> Json:
    requests = {"requests": {GPU: str(NODE_GPUS)}, "limits": {GPU: str(NODE_GPUS)}}
    container = {"name": "main", "image": "x", "resources": requests}
    pods = {
        "name": "main",
        "count": run.nodes,
        "template": {"spec": {"containers": [container], "restartPolicy": "Never"}},
        "topologyRequest": {
            "preferred": "block",
            "podSetSliceRequiredTopology": "fabric.domain",
            "podSetSliceSize": run.size.nodes,
        },
    }
    meta = {"name": name, "namespace": "default"}
    spec = {"queueName": QUEUE, "podSets": [pods]}
    return {"apiVersion": _KUEUE, "kind": "Workload", "metadata": meta, "spec": spec}


def _until_answered(read: Callable[[], Answer[T]]) -> T | None:
    """Wait for an answer; return None after a refusal that lasts."""
    first_refused: list[float] = []

    def decided() -> tuple[T | None] | None:
        answer = read()
        if answer.found:
            return (answer.found,)
        if not answer.is_refused:
            first_refused.clear()
            return None
        first_refused.append(time.monotonic())
        return (None,) if first_refused[-1] - first_refused[0] > PATIENCE_SECONDS else None

    return until(decided, "an answer", 60.0)[0]
