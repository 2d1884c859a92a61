"""What the controllers say of the caches, as a watch brings it, beside what a full list of the fleet comes to."""

import time
from collections import Counter
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import NamedTuple, Self

from fleet_load import REPORTS
from fleet_place import NAMESPACE, FleetCluster
from fleet_storm import Agents
from gkm.api.caches import CacheStatus, GKMCache
from gkm.kube.reflector import Reflector
from gkm.kube.resources import GKMCACHES
from gkm_operator.caches import status as telling
from support.host.waiting import until

LONGEST_SECONDS = 60.0


@dataclass(frozen=True)
class Sums:
    """Nodes of one cache: all that report it, those that are ready, those that failed."""

    total: int
    ready: int
    failed: int


class Transition(NamedTuple):
    """A transition of a cache that an Event reports."""

    cache: str
    action: str
    reason: str


class Statuses:
    """The statuses of all caches, from the moment of `start` on."""

    def __init__(self, place: FleetCluster) -> None:
        self._place = place
        self._seen: Reflector[GKMCache] = Reflector(place.api, GKMCACHES, self._changed)
        self._lock = Lock()
        self._transitions: Counter[Transition] = Counter()
        self._written = 0.0

    def start(self) -> None:
        """Watch."""
        self._seen.start()
        until(self._seen.synced.is_set, "the caches are listed")

    def close(self) -> None:
        """End the watch."""
        self._seen.close()

    def of(self, name: str) -> Sums:
        """Return what the status of a cache says."""
        found = self._seen.get(name, NAMESPACE)
        said = found.status if found else CacheStatus()
        return Sums(said.total_nodes, said.ready_nodes, said.failed_nodes)

    def are(self, wanted: dict[str, Sums]) -> bool:
        """Return whether the caches are verified and say this."""
        return all(self.is_verified(name) and self.of(name) == sums for name, sums in wanted.items())

    def is_verified(self, name: str) -> bool:
        """Return whether the controllers have accepted the image of a cache."""
        found = self._seen.get(name, NAMESPACE)
        verified = found.status.condition("Verified") if found else None
        return verified is not None and verified.status == "True"

    def wrong(self, wanted: dict[str, Sums]) -> list[str]:
        """Return the caches that say something else."""
        return [f"{name}: {self.of(name)}, not {sums}" for name, sums in wanted.items() if self.of(name) != sums]

    @property
    def transitions(self) -> Counter[Transition]:
        """Return what had to be told of the statuses that were written, by the controllers' own rule."""
        with self._lock:
            return Counter(self._transitions)

    @property
    def last_written(self) -> float:
        """Return when a status was last seen to change (monotonic seconds)."""
        return self._written

    def _changed(self, old: GKMCache | None, new: GKMCache | None) -> None:
        if new is None or (old is not None and old.status == new.status):
            return
        with self._lock:
            self._written = time.monotonic()
            for told in telling.events_of(old.status if old else CacheStatus(), new.status):
                self._transitions[Transition(new.metadata.name, told.action, told.reason)] += 1


def truth(place: FleetCluster) -> dict[str, Sums]:
    """Return what a full list of what the agents say comes to: every Node and every agent is Ready here."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in place.digests}
    for page in place.api.list_pages(REPORTS):
        for entry in page.entries:
            for name, said in entry.value["status"]["caches"].items():
                counts[name][said["state"] if said["digest"] == place.digests[name] else ""] += 1
    return {name: Sums(count.total(), count["Ready"], count["Failed"]) for name, count in counts.items()}


class Probe:
    """Changes one cache that no storm changes, and measures the seconds until its status shows each change."""

    def __init__(self, agents: Agents, cache: str, statuses: Statuses) -> None:
        self.seconds: list[float] = []
        self._agents = agents
        self._cache = cache
        self._statuses = statuses
        self._stop = Event()
        self._thread = Thread(target=self._run, name="probe", daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End, with the fleet as it was before."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        node = self._agents.nodes - 1
        while not self._stop.is_set():
            for failures in (1, 0):
                write = self._agents.turn(node, self._cache)
                until(lambda: self._statuses.of(self._cache).failed == failures, "the status", every=0.005)  # noqa: B023
                self.seconds.append(time.monotonic() - write.sent / 1e9)
