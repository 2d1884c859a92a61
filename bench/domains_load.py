"""What users and Grove do to the API server: create PodCliqueSets, and their PodCliques once they are admitted."""

import heapq
import json
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from domains_place import NAMESPACES
from gkm.kube.client import HttpApi
from gkm.kube.errors import ApiError
from gkm.kube.resources import COMPUTEDOMAINS, PODCLIQUES, PODCLIQUESETS, Json, Resource
from support.cluster.cluster import Cluster
from support.grove import desired
from support.grove.objects import clique, pod_clique_set
from support.kube.whole_objects import whole

WRITERS = 8
GROVES_WORKERS = 3
FIRST_RETRY_SECONDS = 0.005
"""Grove's work queue repeats a refused set after 5 ms, doubled each time."""
_FORBIDDEN = 403


SETS, CLIQUES, DOMAINS = (whole(one) for one in (PODCLIQUESETS, PODCLIQUES, COMPUTEDOMAINS))


def create_sets(api: HttpApi, count: int, replicas: int) -> list[Json]:
    """Create sets of one GPU clique over all namespaces at once, and return them as stored."""
    wanted = [
        pod_clique_set(f"set-{number:04}", clique("worker", 8), replicas=replicas, namespace=NAMESPACES[number % 10])
        for number in range(count)
    ]
    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(lambda one: api.create(SETS, one), wanted))


def delete_sets(api: HttpApi, sets: Iterable[Json]) -> None:
    """Delete sets at once."""
    names = [one["metadata"]["name"] for one in sets]
    namespaces = [one["metadata"]["namespace"] for one in sets]
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda name, namespace: api.delete(SETS, name, namespace), names, namespaces))


def count(cluster: Cluster, resource: Resource[Json]) -> int:
    """Return the number of objects of a kind, by a list of one."""
    found = json.loads(cluster.kubectl("get", "--raw", f"{resource.path()}?limit=1"))
    return len(found["items"]) + int(found["metadata"].get("remainingItemCount", 0))


@dataclass(order=True)
class _Attempt:
    due: float
    number: int
    failures: int


class CliqueMaker:
    """Grove's part: creates the PodCliques of each set, and repeats a set that was refused later and later."""

    def __init__(self, api: HttpApi, sets: list[Json]) -> None:
        self._api = api
        self._pending = [list(desired.standalone_cliques(one)) for one in sets]
        self._queue = [_Attempt(0.0, number, 0) for number in range(len(sets))]
        self.refusals = 0
        self.milliseconds: list[float] = []
        """How long each admitted request took."""

    def run(self, deadline: float) -> None:
        """Work until every PodClique exists.

        Raises:
            TimeoutError: the deadline (monotonic) has passed.
        """
        with ThreadPoolExecutor(GROVES_WORKERS) as pool:
            while self._queue:
                now = time.monotonic()
                if now > deadline:
                    raise TimeoutError(f"{sum(map(len, self._pending))} PodCliques are still refused")
                due = [heapq.heappop(self._queue) for _ in range(GROVES_WORKERS) if self._is_due(now)]
                if not due:
                    time.sleep(FIRST_RETRY_SECONDS)
                for attempt, done in zip(due, pool.map(self._attempt, due), strict=True):
                    if not done:
                        self._repeat(attempt)

    def _is_due(self, now: float) -> bool:
        return bool(self._queue) and self._queue[0].due <= now

    def _attempt(self, attempt: _Attempt) -> bool:
        pending = self._pending[attempt.number]
        while pending:
            began = time.monotonic()
            try:
                self._api.create(CLIQUES, pending[-1])
            except ApiError as error:
                if error.status != _FORBIDDEN and not error.conflict:
                    raise
                if not error.conflict:
                    return False
            self.milliseconds.append((time.monotonic() - began) * 1000)
            pending.pop()
        return True

    def _repeat(self, attempt: _Attempt) -> None:
        self.refusals += 1
        pause = FIRST_RETRY_SECONDS * 2**attempt.failures
        heapq.heappush(self._queue, _Attempt(time.monotonic() + pause, attempt.number, attempt.failures + 1))
