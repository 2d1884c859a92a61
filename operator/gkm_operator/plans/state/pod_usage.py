"""The GPUs that pods use, by node and by run, updated by changes: a cluster has a hundred thousand pods."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock

from gkm.topology.pods import NodeLoad
from gkm.topology.usage import Usage, added

from gkm_operator.plans.state.objects import RunKey
from gkm_operator.pods import WatchedPod


@dataclass(frozen=True, slots=True)
class PodUsage:
    """The GPUs that pods use at one moment, by node: those of all pods, and those of each run.

    `terminating` has the part of `runs` that belongs to pods that are being deleted.
    """

    usage: Usage = field(default_factory=Usage)
    runs: Mapping[RunKey, Mapping[str, int]] = field(default_factory=dict)
    terminating: Mapping[RunKey, Mapping[str, int]] = field(default_factory=dict)

    def of(self, run: RunKey) -> Mapping[str, int]:
        """Return the GPUs that pods of a run use, by node."""
        return self.runs.get(run, {})

    def held(self, run: RunKey) -> Mapping[str, int]:
        """Return the GPUs that a run holds by its pods, by node: a pod that is being deleted holds none for it."""
        ending = self.terminating.get(run)
        if not ending:
            return self.of(run)
        held = ((node, gpus - ending.get(node, 0)) for node, gpus in self.of(run).items())
        return {node: gpus for node, gpus in held if gpus > 0}

    def without(self, run: RunKey) -> Usage:
        """Return the GPUs that all other pods use."""
        own = self.of(run)
        if not own:
            return self.usage
        gpus = dict(self.usage.gpus)
        for node, count in own.items():
            gpus[node] = gpus.get(node, 0) - count
        return Usage(gpus, self.usage.faults, self.usage.loads)


class PodUsageIndex:
    """The sums over pods. Thread-safe: a watch changes them, another thread reads them."""

    def __init__(self) -> None:
        self._gpus: dict[str, int] = {}
        self._loads: dict[str, NodeLoad] = {}
        self._runs: dict[RunKey, dict[str, int]] = {}
        self._terminating: dict[RunKey, dict[str, int]] = {}
        self._faults: dict[str, dict[tuple[str, str], str]] = {}
        self._lock = Lock()

    def change(self, old: WatchedPod | None, new: WatchedPod | None) -> bool:
        """Apply a change of a pod; return whether it changes a sum of GPUs or what is known of them."""
        if old is not None and new is not None and _counted(old) == _counted(new):
            return False
        with self._lock:
            for pod, sign in ((old, -1), (new, 1)):
                if pod is not None:
                    self._count_load(pod, sign)
            counted = [self._count(pod, sign) for pod, sign in ((old, -1), (new, 1)) if pod is not None]
        return any(counted)

    def usage(self) -> PodUsage:
        """Return the sums."""
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
