"""The pods of each run, and the planned nodes that requests in progress give them. Thread-safe."""

from collections import defaultdict
from collections.abc import Callable
from threading import Lock

from gkm.hoststate.lru import LRUCache

from gkm_operator.plans.gates.slots import PlacedPod
from gkm_operator.plans.state.objects import RunKey
from gkm_operator.pods import WatchedPod

_MAX_SENT = 65_536


class RunPodIndex:
    """Indexes pods by Run. A node that was sent for a pod is remembered until the watch shows the pod without its gate.

    Without this memory, a pod that comes between a request and its change in the watch could get the same place.
    """

    def __init__(self) -> None:
        self._pods: defaultdict[RunKey, dict[str, WatchedPod]] = defaultdict(dict)
        self._sent: LRUCache[str, tuple[str, str]] = LRUCache(_MAX_SENT)
        self._lock = Lock()

    def change(self, old: WatchedPod | None, new: WatchedPod | None) -> set[RunKey]:
        """Update the index after a change of a pod; return the Runs that it concerns."""
        with self._lock:
            for pod in (old, new):
                if pod is not None:
                    self._pods[_run(pod)].pop(pod.metadata.name, None)
            if new is not None:
                self._pods[_run(new)][new.metadata.name] = new
            changed = {_run(pod) for pod in (old, new) if pod is not None}
            for run in changed:
                if not self._pods[run]:
                    del self._pods[run]
        return changed

    def of(self, run: RunKey, plan: str, node_of: Callable[[str], str]) -> list[PlacedPod]:
        """Return the pods of a Run; `node_of` returns the node with a value of the label kubernetes.io/hostname.

        A place of another plan does not count: if it was written all the same, the next request is a conflict.
        """
        with self._lock:
            found = list(self._pods.get(run, {}).values())
        return [self._placed(pod, plan, node_of) for pod in found]

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
