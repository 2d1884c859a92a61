"""Agents that change their reports: at a rate, each time one cache on one node, by server-side apply of the status.

The first half of the changes fails a cache on a node, the second half repairs it: a storm leaves the fleet as it was,
and as many nodes fail at a time in a small fleet as in a large one.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event, Lock

from fleet_load import AGENT
from fleet_objects import failed, node_name, status
from fleet_place import NAMESPACE, FleetCluster
from gkm.api.meta import API_VERSION
from gkm.api.nodes import NodeCacheStatus
from gkm.kube.decoding import plain
from gkm.kube.resources import Resource
from msgspec import Struct

WRITERS = 8


class _Versioned(Struct, rename="camel"):
    resource_version: str


class _Response(Struct):
    metadata: _Versioned


_ANSWERED = Resource(API_VERSION, "GKMCacheNode", "gkmcachenodes", namespaced=True, type=_Response)


@dataclass(frozen=True)
class Write:
    """A change that was written; times are monotonic nanoseconds, which all processes of a machine share."""

    version: str
    sent: int
    answered: int


@dataclass
class Agents:
    """The present report of every node's agent, in memory: all caches Ready but the failed ones below."""

    place: FleetCluster
    nodes: int
    _other: dict[int, dict[str, NodeCacheStatus]] = field(default_factory=dict)
    _busy: list[Lock] = field(default_factory=lambda: [Lock() for _ in range(256)])

    def turn(self, number: int, cache: str) -> Write:
        """Report a cache as failed on a node, or as repaired after a failure; return when the server has stored it."""
        # Two changes of one node must reach the server in their order.
        with self._busy[number % len(self._busy)]:
            other = self._other.setdefault(number, {})
            if other.pop(cache, None) is None:
                other[cache] = failed(self.place.digests[cache])
            value = {
                "apiVersion": API_VERSION,
                "kind": "GKMCacheNode",
                "metadata": {"name": node_name(number), "namespace": NAMESPACE},
                "status": plain(status(self.place.digests, other)),
            }
            sent = time.monotonic_ns()
            answer = self.place.api.apply(_ANSWERED, value, field_manager=AGENT, subresource="status")
            return Write(answer.metadata.resource_version, sent, time.monotonic_ns())


@dataclass(frozen=True)
class Storm:
    """Changes that were asked for at a rate, and when they were made."""

    writes: Sequence[Write]
    seconds: float

    @property
    def rate(self) -> float:
        """Return the changes a second that the server took."""
        return len(self.writes) / self.seconds


def storm(agents: Agents, caches: Sequence[str], per_second: float, count: int, stop: Event | None = None) -> Storm:
    """Make `count` changes, as evenly as the server allows; `stop` ends it early, and then changes stay unmended."""
    half = max(1, count // 2)
    began = time.monotonic()

    def change(number: int) -> Write | None:
        if stop is not None and stop.is_set():
            return None
        time.sleep(max(0.0, began + number / per_second - time.monotonic()))
        which = number % half
        return agents.turn(which % agents.nodes, caches[which % len(caches)])

    with ThreadPoolExecutor(WRITERS) as pool:
        writes = [write for write in pool.map(change, range(2 * half)) if write is not None]
    return Storm(writes, time.monotonic() - began)


def percentile_ms(nanoseconds: Sequence[int], percent: int) -> float:
    """Return the percentile of the times in milliseconds."""
    ordered = sorted(nanoseconds)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] / 1e6
