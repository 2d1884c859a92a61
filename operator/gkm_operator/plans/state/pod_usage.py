"""What pods take, by node and by run, kept by differences: a hundred thousand pods are never added up anew."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock

from gkm.topology.usage import Usage

from gkm_operator.plans.state.objects import RunKey, WatchedPod

_NONE: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class PodUsage:
    """What pods take, at one moment: all of them, and those of each run; GPUs by node."""

    usage: Usage = field(default_factory=Usage)
    runs: Mapping[RunKey, Mapping[str, int]] = field(default_factory=dict)

    def of(self, run: RunKey) -> Mapping[str, int]:
        """Return what the pods of a run take."""
        return self.runs.get(run, _NONE)

    def without(self, run: RunKey) -> Usage:
        """Return what the pods of all others take."""
        own = self.of(run)
        if not own:
            return self.usage
        gpus = dict(self.usage.gpus)
        for node, count in own.items():
            gpus[node] = gpus.get(node, 0) - count
        return Usage(gpus, self.usage.faults)


class PodUsageIndex:
    """The sums over pods. Thread-safe: a watch tells it, another thread asks."""

    def __init__(self) -> None:
        self._gpus: dict[str, int] = {}
        self._runs: dict[RunKey, dict[str, int]] = {}
        self._faults: dict[str, dict[tuple[str, str], str]] = {}
        self._lock = Lock()

    def change(self, old: WatchedPod | None, new: WatchedPod | None) -> bool:
        """Take in a difference; return whether anything counts otherwise than before."""
        if old == new:
            return False
        with self._lock:
            counted = [self._count(pod, sign) for pod, sign in ((old, -1), (new, 1)) if pod is not None]
        return any(counted)

    def usage(self) -> PodUsage:
        """Return the sums."""
        with self._lock:
            # Of several sentences about a node the first by letters, in whatever order the pods came.
            faults = {node: min(said.values()) for node, said in self._faults.items()}
            runs = {run: dict(gpus) for run, gpus in self._runs.items()}
            return PodUsage(Usage(dict(self._gpus), faults), runs)

    def _count(self, pod: WatchedPod, sign: int) -> bool:
        node, meta = pod.node, pod.metadata
        if not node:
            return False
        if pod.fault:
            said = self._faults.setdefault(node, {})
            which = (meta.namespace, meta.name)
            if sign > 0:
                said[which] = f"pod {meta.namespace}/{meta.name} on it: {pod.fault}"
            else:
                said.pop(which, None)
            if not said:
                del self._faults[node]
            return True
        if not pod.gpus:
            return False
        _add(self._gpus, node, sign * pod.gpus)
        if meta.run:
            run = RunKey(meta.namespace, meta.run)
            own = self._runs.setdefault(run, {})
            _add(own, node, sign * pod.gpus)
            if not own:
                del self._runs[run]
        return True


def _add(sums: dict[str, int], node: str, gpus: int) -> None:
    left = sums.get(node, 0) + gpus
    if left:
        sums[node] = left
    else:
        sums.pop(node, None)
