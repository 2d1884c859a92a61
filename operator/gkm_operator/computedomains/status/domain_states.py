"""The number of ComputeDomains by state, as the metric `gkm_computedomains`."""

from collections import Counter
from threading import Lock

from gkm.api.domain_readiness import MNNVLReadiness, ReadyReason
from gkm.api.meta import TRUE
from gkm.kube.api import Key

from gkm_operator import metrics

_STATES = {
    ReadyReason.DOMAIN_LOST.value: "lost",
    ReadyReason.DOMAIN_TERMINATING.value: "terminating",
    ReadyReason.WAITING_FOR_PODS.value: "waiting",
    # A busy cluster always has pods that wait for nodes: no fault that an alert should count.
    ReadyReason.PODS_PENDING.value: "waiting",
}


def state(condition: MNNVLReadiness) -> str:
    """Return the state that a condition counts as."""
    return "ready" if condition.status == TRUE else _STATES.get(condition.reason, "notReady")


class DomainStates:
    """Thread-safe."""

    def __init__(self) -> None:
        self._by_key: dict[Key, str] = {}
        self._counts: Counter[str] = Counter()
        self._lock = Lock()

    def record(self, key: Key, new: str) -> None:
        """Record the state of a domain; "" forgets it."""
        with self._lock:
            old = self._by_key.pop(key, "")
            if new:
                self._by_key[key] = new
            self._counts[old] -= 1
            self._counts[new] += 1
            for changed in {old, new} - {""}:
                metrics.COMPUTEDOMAINS.labels(changed).set(self._counts[changed])
