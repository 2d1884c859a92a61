"""Compute the free GPUs for a run: allocatable GPUs minus GPUs of pods, minus reservations of other runs.

The GPUs that pods use are sums by node and by run, updated by changes: a cluster has a hundred thousand pods. A
FreeCapacity serves one reconcile pass, and accounts for the plans that the pass creates.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from gkm.hoststate.lru import LRUCache
from gkm.kube.resources import CLAIMS
from gkm.packing.usable_nodes import UsableNodes, usable_nodes, version
from gkm.packing.values import Location, Node, Share
from gkm.topology.claims import ResourceClaim, gpus_by_holder
from gkm.topology.eligibility import NodeDemand, PodDemand, load_of
from gkm.topology.pods import NodeLoad
from gkm.topology.survey import TopologySurvey
from gkm.topology.usage import Usage, added, with_claims, with_loads

from gkm_operator.plans.state.objects import RunKey
from gkm_operator.pods import WatchedPod


@dataclass(frozen=True, slots=True)
class PodUsage:
    """The GPUs that pods use at one moment, by node: in total and for each Run.

    `terminating` has the part of `runs` that belongs to pods that are being deleted.
    """

    usage: Usage = field(default_factory=Usage)
    runs: Mapping[RunKey, Mapping[str, int]] = field(default_factory=dict)
    terminating: Mapping[RunKey, Mapping[str, int]] = field(default_factory=dict)

    def of(self, run: RunKey) -> Mapping[str, int]:
        """Return the GPUs that the pods of a Run use on each node, including terminating pods."""
        return self.runs.get(run, {})

    def held(self, run: RunKey) -> Mapping[str, int]:
        """Return the GPUs that the pods of a Run use on each node, without terminating pods."""
        ending = self.terminating.get(run)
        if not ending:
            return self.of(run)
        held = ((node, gpus - ending.get(node, 0)) for node, gpus in self.of(run).items())
        return {node: gpus for node, gpus in held if gpus > 0}

    def without(self, run: RunKey) -> Usage:
        """Return the GPUs that pods of all other Runs, and of no Run, use on each node."""
        own = self.of(run)
        if not own:
            return self.usage
        gpus = dict(self.usage.gpus)
        for node, count in own.items():
            gpus[node] = gpus.get(node, 0) - count
        return Usage(gpus, self.usage.faults, self.usage.loads)


class PodUsageIndex:
    """Adds up the GPUs of pods by node and by Run. Thread-safe: a watch changes it, another thread reads it."""

    def __init__(self) -> None:
        self._gpus: dict[str, int] = {}
        self._loads: dict[str, NodeLoad] = {}
        self._runs: dict[RunKey, dict[str, int]] = {}
        self._terminating: dict[RunKey, dict[str, int]] = {}
        self._faults: dict[str, dict[tuple[str, str], str]] = {}
        self._lock = Lock()

    def change(self, old: WatchedPod | None, new: WatchedPod | None) -> bool:
        """Update the sums after a change of a pod; return whether it changes any sum."""
        if old is not None and new is not None and _counted(old) == _counted(new):
            return False
        with self._lock:
            for pod, sign in ((old, -1), (new, 1)):
                if pod is not None:
                    self._count_load(pod, sign)
            counted = [self._count(pod, sign) for pod, sign in ((old, -1), (new, 1)) if pod is not None]
        return any(counted)

    def usage(self) -> PodUsage:
        """Return the current sums of GPUs that pods use."""
        with self._lock:
            # The first message in alphabetical order, so that the order of pods does not matter.
            faults = {node: min(messages.values()) for node, messages in self._faults.items()}
            usage = Usage(dict(self._gpus), faults, dict(self._loads))
            return PodUsage(usage, _copy(self._runs), _copy(self._terminating))

    def _count_load(self, pod: WatchedPod, sign: int) -> None:
        if not pod.load.pods:
            return
        load = added(self._loads.get(pod.node, NodeLoad()), pod.load, sign)
        if load.pods:
            self._loads[pod.node] = load
        else:
            del self._loads[pod.node]

    def _count(self, pod: WatchedPod, sign: int) -> bool:
        node, meta = pod.node, pod.metadata
        if not node:
            return False
        if pod.fault:
            messages = self._faults.setdefault(node, {})
            key = (meta.namespace, meta.name)
            if sign > 0:
                messages[key] = f"pod {meta.namespace}/{meta.name} on it: {pod.fault}"
            else:
                messages.pop(key, None)
            if not messages:
                del self._faults[node]
            return True
        if not pod.gpus:
            return False
        _add(self._gpus, node, sign * pod.gpus)
        if meta.run:
            run = RunKey(meta.namespace, meta.run)
            for sums in (self._runs, self._terminating) if meta.terminating else (self._runs,):
                own = sums.setdefault(run, {})
                _add(own, node, sign * pod.gpus)
                if not own:
                    del sums[run]
        return True


def _counted(pod: WatchedPod) -> object:
    """Return what is read here of a pod: the other fields change more often."""
    return pod.node, pod.gpus, pod.load, pod.fault, pod.metadata.run, pod.metadata.terminating


def _copy(sums: Mapping[RunKey, Mapping[str, int]]) -> dict[RunKey, dict[str, int]]:
    return {run: dict(gpus) for run, gpus in sums.items()}


def _add(sums: dict[str, int], node: str, gpus: int) -> None:
    total = sums.get(node, 0) + gpus
    if total:
        sums[node] = total
    else:
        sums.pop(node, None)


if TYPE_CHECKING:
    from gkm.packing.inventory import Inventory

_MAX_INVENTORIES = 8
"""Limit of cached inventories; one takes a few megabytes for 10,000 nodes."""


def excess(gpus: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Return the GPUs of each node that are more than the other ones of it, without nodes where none are.

    The GPUs reserved for a Run are those of its plan that its pods do not use; its drift is what they use besides.
    """
    more = ((node, number - other.get(node, 0)) for node, number in gpus.items())
    return {node: number for node, number in more if number > 0}


class Reservations:
    """The GPUs reserved for each Run on each node, with sums; `pods` has one pod's demand for each known Run."""

    def __init__(
        self, by_run: Mapping[RunKey, Mapping[str, int]], pods: Mapping[RunKey, PodDemand | None] | None = None
    ) -> None:
        self._by_run = dict(by_run)
        self._pods = dict(pods or {})
        self._version: int | None = None
        self.total: Counter[str] = Counter()
        self.loads: dict[str, NodeLoad] = {}
        """The requests of the pods that GPUs are reserved for, by node."""
        for run, reserved in self._by_run.items():
            self.total.update(reserved)
            self._add_loads(run, 1)

    def put(self, run: RunKey, reserved: Mapping[str, int], pod: PodDemand | None = None) -> None:
        """Replace the reservation of a Run; `pod` is the demand of one of its pods."""
        self._add_loads(run, -1)
        self.total.subtract(self._by_run.pop(run, {}))
        self.total.update(reserved)
        self.total = +self.total
        self._by_run[run] = reserved
        self._pods[run] = pod
        self._add_loads(run, 1)
        self._version = None

    @property
    def version(self) -> int:
        """Return a hash of all reservations; equal reservations have equal hashes."""
        # Every waiting run reads it.
        if self._version is None:
            self._version = hash((frozenset(self.total.items()), frozenset(self.loads.items())))
        return self._version

    def loads_without(self, run: RunKey) -> Mapping[str, NodeLoad]:
        """Return the reserved requests for CPU and memory on each node, without the reservation of one Run."""
        own = ((node, added(self.loads[node], load, -1)) for node, load in self._loads_of(run))
        return {**self.loads, **dict(own)}

    def _add_loads(self, run: RunKey, sign: int) -> None:
        for node, load in self._loads_of(run):
            self.loads[node] = added(self.loads.get(node, NodeLoad()), load, sign)

    def _loads_of(self, run: RunKey) -> Iterator[tuple[str, NodeLoad]]:
        if (pod := self._pods.get(run)) is not None:
            yield from ((node, load_of(pod, gpus)) for node, gpus in self._by_run.get(run, {}).items())

    def nodes_of(self, run: RunKey) -> Collection[str]:
        """Return the names of the nodes on which GPUs are reserved for a Run."""
        return self._by_run.get(run, {}).keys()

    def sum_of(self, runs: Iterable[RunKey]) -> int:
        """Return the sum of GPUs that are reserved for these Runs on all nodes."""
        return sum(sum(self._by_run.get(run, {}).values()) for run in runs)

    def without(self, run: RunKey) -> Counter[str]:
        """Return the reserved GPUs on each node, without the reservation of one Run."""
        others = Counter(self.total)
        others.subtract(self._by_run.get(run, {}))
        return +others


@dataclass(frozen=True, slots=True)
class FreeGpus:
    """The nodes and GPUs that a Run may use, in the form that the planner needs.

    Of `usable`, only nodes and version change after the start of a pass.
    """

    usable: UsableNodes
    inventory: "Inventory"

    @classmethod
    def of(cls, usable: UsableNodes) -> "FreeGpus":
        """Return the free GPUs of usable nodes."""
        from gkm.packing.inventory import Inventory  # noqa: PLC0415 - numpy is loaded with the first run

        return cls(usable, Inventory.from_nodes(usable.nodes))

    @property
    def version(self) -> str:
        """Return the version of the inventory, a hash of its content."""
        return self.usable.version

    def less(self, claims: Mapping[str, int]) -> "FreeGpus":
        """Return the free GPUs after subtracting `claims`; claims on other nodes are ignored."""
        numbers = self.inventory.numbers
        shares = [Share(node, gpus) for node, gpus in claims.items() if node in numbers]
        if not shares:
            return self
        # A pod may have started since: then fewer GPUs than the claims are free.
        free = [Share(node, min(gpus, self.inventory.nodes[numbers[node]].free)) for node, gpus in shares]
        rest = self.inventory.taking(free)
        return FreeGpus(replace(self.usable, nodes=rest.nodes, version=version(rest.nodes)), rest)


class FreeCapacity:
    """Computes the free GPUs for Runs in one planning pass. Not thread-safe."""

    def __init__(self, survey: TopologySurvey, pods: PodUsage, reservations: Reservations) -> None:
        self._survey = survey
        self._pods = pods
        self.reservations = reservations
        self._by_demand: LRUCache[str, tuple[NodeDemand, FreeGpus]] = LRUCache(_MAX_INVENTORIES)

    def free_for(self, run: RunKey, demand: NodeDemand, retained: Sequence[Node] = (), *, alone: bool) -> FreeGpus:
        """Return the GPUs that a Run may use; with `alone`, GPUs of its own plan and pods are free.

        `retained` are nodes that take no new groups, with the GPUs that the run keeps there.
        """
        if alone or self._pods.of(run):
            return self._own(run, demand, retained)
        # By its text: a Demand contains dicts, which have no hash.
        _, free = self._by_demand.get_or_create(
            repr(demand), lambda: (demand, FreeGpus.of(self._usable(self._survey, demand)))
        )
        return free

    def record_plan(self, run: RunKey, claims: Mapping[str, int], pod: PodDemand | None = None) -> None:
        """Reserve the GPUs of a new plan; the GPUs of its former plan become free in the next pass."""
        reserved = excess(claims, self._pods.of(run))
        self.reservations.put(run, reserved, pod)
        located = tuple(each for each in self._survey.located if each.node.name in reserved)
        survey = replace(self._survey, located=located, quarantined=(), bare=())
        for key, (demand, free) in self._by_demand.items():
            # The nodes of the plan anew: with its pods there, a node may start fewer pods than GPUs are left for.
            left = {node.name: node.free for node in self._usable(survey, demand).nodes}
            numbers = free.inventory.numbers
            taken = {
                node: free.inventory.nodes[numbers[node]].free - left.get(node, 0)
                for node in reserved
                if node in numbers
            }
            self._by_demand.put(key, (demand, free.less(taken)))

    def _usable(self, survey: TopologySurvey, demand: NodeDemand) -> UsableNodes:
        loads = self.reservations.loads
        of_survey = {name: loads[name] for name in (each.node.name for each in survey.located) if name in loads}
        return usable_nodes(survey, with_loads(self._pods.usage, of_survey), demand, self.reservations.total)

    def _reserved_by_others(self, run: RunKey) -> Counter[str]:
        """Return the reservations of other runs. None covers GPUs that pods of this run use: they cannot be had."""
        others, own, used = self.reservations.without(run), self._pods.of(run), self._pods.usage.gpus
        for located in self._survey.located if own else ():
            name = located.node.name
            if name in own and name in others:
                others[name] = min(others[name], max(0, located.gpus - used.get(name, 0)))
        return others

    def _own(self, run: RunKey, demand: NodeDemand, retained: Sequence[Node]) -> FreeGpus:
        own = {*self._pods.of(run), *self.reservations.nodes_of(run)}
        usage = with_loads(self._pods.without(run), self.reservations.loads_without(run))
        usable = usable_nodes(self._survey, usage, demand, self._reserved_by_others(run), own)
        if not retained:
            return FreeGpus.of(usable)
        names = {node.name for node in retained}
        nodes = (*(node for node in usable.nodes if node.name not in names), *_in_racks(retained, self._survey))
        return FreeGpus.of(replace(usable, nodes=nodes, version=version(nodes)))


def _in_racks(retained: Sequence[Node], survey: TopologySurvey) -> Iterator[Node]:
    """Yield nodes with the racks of their domains: rules about racks must not move groups whose labels are away.

    A domain without any node that labels locate is a rack by itself.
    """
    places = {node.place for node in retained}
    racks: dict[Location, set[str]] = {}
    for located in survey.located:
        if located.location in places:
            racks.setdefault(located.location, set()).add(located.rack)
    for node in retained:
        found = racks.get(node.place, {"/".join(node.place)})
        yield replace(node, rack=min(found) if len(found) == 1 else "")


CLAIMED = CLAIMS.of(ResourceClaim)


class _Holder(NamedTuple):
    """A run, and whether its pod is being deleted."""

    run: RunKey
    terminating: bool


def with_claimed_gpus(
    usage: PodUsage, claims: Iterable[ResourceClaim], pod: Callable[[str, str], WatchedPod | None]
) -> PodUsage:
    """Return the GPU usage of pods plus the GPUs of ResourceClaims; `pod` returns a pod by name and namespace."""

    def holder(namespace: str, name: str) -> _Holder | None:
        found = pod(name, namespace)
        if found is None or not found.metadata.run:
            return None
        return _Holder(RunKey(namespace, found.metadata.run), found.metadata.terminating)

    held = gpus_by_holder(claims, holder)
    if not held:
        return usage
    runs, terminating = ({run: dict(gpus) for run, gpus in sums.items()} for sums in (usage.runs, usage.terminating))
    for one, gpus in held.items():
        if one is not None:
            _add_all(runs, one.run, gpus)
            if one.terminating:
                _add_all(terminating, one.run, gpus)
    return PodUsage(with_claims(usage.usage, held.values()), runs, terminating)


def _add_all(sums: dict[RunKey, dict[str, int]], run: RunKey, gpus: Mapping[str, int]) -> None:
    own = sums.setdefault(run, {})
    for node, count in gpus.items():
        own[node] = own.get(node, 0) + count
