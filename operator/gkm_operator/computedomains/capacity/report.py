"""Writes the ConfigMap `gkm-domains`: the capacity for ComputeDomains, and the conditions of the feature.

It is written on change, at most every INTERVAL_SECONDS. Admission reads it for warnings, so it decides about nothing.
"""

import time
from collections.abc import Callable, Sequence

import msgspec
from gkm.api.domain_capacity import CAPACITY_KEY, CONDITIONS_KEY, CONFIG_MAP, DomainCapacity
from gkm.api.meta import Condition
from gkm.hoststate.pacing import Backoff, Clock
from gkm.kube.api import Api
from gkm.kube.resources import CONFIGMAPS
from gkm.kube.workqueue import WorkQueue

from gkm_operator import metrics
from gkm_operator.computedomains.capacity.free_nodes import capacity_text

NAME = "domain-capacity"
FIELD_MANAGER = "gkm-domains"
INTERVAL_SECONDS = 5.0
CALM_SECONDS = 0.5
"""The delay after a change, so that one write covers the changes that come with it."""


class CapacityReport:
    """`capacity` and `conditions` return what to write."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        *,
        capacity: Callable[[], DomainCapacity],
        conditions: Callable[[], Sequence[Condition]],
        clock: Clock = time.monotonic,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._capacity = capacity
        self._conditions = conditions
        self._clock = clock
        self._written: dict[str, str] = {}
        self._next = clock()
        self.queue: WorkQueue[str] = WorkQueue(
            NAME, self.write, workers=1, backoff=Backoff(1.0, 60.0), observe=metrics.reconcile_recorder(NAME)
        )

    def changed(self) -> None:
        """Schedule a write."""
        self.queue.add(CONFIG_MAP, max(CALM_SECONDS, self._next - self._clock()))

    def write(self, name: str) -> None:
        """Write the ConfigMap if it differs from the last write.

        Raises:
            ApiError: the API server refused the write.
        """
        conditions = msgspec.json.encode(list(self._conditions())).decode()
        data = {CAPACITY_KEY: capacity_text(self._capacity()), CONDITIONS_KEY: conditions}
        if data == self._written:
            return
        self._next = self._clock() + INTERVAL_SECONDS
        meta = {"name": name, "namespace": self._namespace}
        value = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
        self._api.apply(CONFIGMAPS, value, field_manager=FIELD_MANAGER)
        self._written = data
