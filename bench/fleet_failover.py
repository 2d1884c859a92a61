"""Kill the leader during a storm, again and again: measure the time without a writer, and check the Events."""

import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from statistics import median
from threading import Event

from fleet_figures import Row, probed, settle
from fleet_place import NAMESPACE, FleetCluster
from fleet_process import LONGEST_SECONDS, Controllers
from fleet_statuses import Statuses, Transition, truth
from fleet_storm import Agents, storm
from gkm.kube.resources import EVENTS
from support.host.waiting import until

RATE = 50
EVENT_SECONDS = 10.0
"""An Event follows its status."""
LEASE_LOOK_SECONDS = 0.02
MANY = 100_000
"""Changes; the storm ends when a new leader has written."""


def failovers(agents: Agents, statuses: Statuses, leader: Controllers, times: int) -> Row:
    """Kill the leader `times` times, each time beside a new replica; wait for right statuses in between."""
    place = agents.place
    took: list[float] = []
    with ExitStack() as stack:
        for number in range(times):
            other = Controllers.start(place, f"replica-{number}", stack)
            took.append(_kill(agents, statuses, leader, other, f"failover-{number}"))
            leader = other
            settle(place, statuses)
        with suppress(TimeoutError):  # then they are lost
            until(lambda: not _missing_events(place, statuses), "the events", EVENT_SECONDS)
        lost, doubled = _missing_events(place, statuses), _doubled(place, statuses)
    for what, found in (("lost", lost), ("doubled", doubled)):
        if found:
            sys.stderr.write(f"fleet: {what}: {dict(found)}\n")
    return {
        "failover_s": median(took),
        "failover_max_s": max(took),
        "failover_transitions": float(statuses.transitions.total()),
        "failover_events_lost": float(lost.total()),
        "failover_events_doubled": float(doubled.total()),
        "failover_statuses_wrong": float(len(statuses.wrong(truth(place)))),
    }


def _kill(agents: Agents, statuses: Statuses, leader: Controllers, other: Controllers, cache: str) -> float:
    """Return the seconds from SIGKILL to the first status that the other wrote."""
    stop = Event()
    caches = sorted(agents.place.digests)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(storm, agents, caches, RATE, MANY, stop)
        try:
            begun = statuses.last_written
            until(lambda: statuses.last_written > begun, "the leader to write", LONGEST_SECONDS)
            agents.place.declare(f"{cache}-before")
            killed = time.monotonic()
            leader.process.kill()
            agents.place.declare(f"{cache}-after")
            until(lambda: other.leads, "the other to lead", LONGEST_SECONDS, every=LEASE_LOOK_SECONDS)
            led = time.monotonic()
            until(lambda: statuses.last_written > led, "the other to write", LONGEST_SECONDS)
            took = statuses.last_written - killed
        finally:
            stop.set()
        running.result()
    for name in (f"{cache}-before", f"{cache}-after"):
        until(lambda: statuses.is_verified(name), f"the verdict on {name}", LONGEST_SECONDS)  # noqa: B023
    return took


def _events_by_cache(place: FleetCluster) -> Counter[Transition]:
    """Return the Events of each cache."""
    return Counter(
        Transition(entry.value["regarding"]["name"], entry.value["action"], entry.value["reason"])
        for page in place.api.list_pages(EVENTS)
        for entry in page.entries
        if entry.namespace == NAMESPACE
    )


def _missing_events(place: FleetCluster, statuses: Statuses) -> Counter[Transition]:
    return _without_probe(place, statuses.transitions - _events_by_cache(place))


def _doubled(place: FleetCluster, statuses: Statuses) -> Counter[Transition]:
    return _without_probe(place, _events_by_cache(place) - statuses.transitions)


def _without_probe(place: FleetCluster, found: Counter[Transition]) -> Counter[Transition]:
    """Leave out the Events that the product omits for a cache that changes too often."""
    return Counter({about: count for about, count in found.items() if about.cache != probed(place)})
