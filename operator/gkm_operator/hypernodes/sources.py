"""The providers of the configuration as the tree sees them: placements, and a state for people.

A provider that fails keeps its last placements.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from gkm.api.topology_settings import Topology
from gkm.api.topology_status import ProviderState, ProviderStatus
from gkm.topology.hypernodes import HyperNode
from gkm.topology.label_levels import label_placements
from gkm.topology.placements import Placements, placements
from gkm.topology.quarantine import Quarantined
from msgspec import structs

from gkm_operator.hypernodes.watcher import TopologyWatcher

MAX_FAULTS = 8
"""Sentences about a provider's data in its report."""


class Source(Protocol):
    """A provider. `placements` is None until it has served once."""

    name: str
    placements: Placements | None

    def refresh(self) -> bool:
        """Read what has changed; return whether the placements have. May take minutes. For one thread at a time."""

    def report(self) -> ProviderStatus:
        """Return the state for people, without content of the source."""

    def lag(self, now: float) -> float:
        """Return how many seconds old the data may be at `now`, in seconds since 1970; NaN before the first data."""


class LabelSource:
    """The provider `labels`."""

    def __init__(self, watcher: TopologyWatcher, settings: Topology) -> None:
        self.name = "labels"
        self.placements: Placements | None = None
        self._watcher = watcher
        self._settings = settings
        self._version = -1

    def refresh(self) -> bool:
        """Read the labels of all nodes, if a node has changed."""
        version = self._watcher.node_input.version
        if version == self._version or not self._watcher.nodes.synced.is_set():
            return False
        # Nodes that change meanwhile have a later version.
        found = label_placements(self._watcher.nodes.values(), self._settings)
        self._version = version
        if found == self.placements:
            return False
        self.placements = found
        return True

    def report(self) -> ProviderStatus:
        """Return the state."""
        if self.placements is None:
            return ProviderStatus(self.name, ProviderState.STARTING, reason="waits for the list of nodes")
        return serving(self.name, self.placements)

    def lag(self, _now: float) -> float:
        """Return 0: a watch shows every change."""
        return math.nan if self.placements is None else 0.0


class Children(Protocol):
    """The providers that run in child processes (gkm_operator.hypernodes.providers.host)."""

    def hypernodes(self, provider: str) -> tuple[HyperNode, ...]:
        """Return the last good HyperNodes of a provider."""

    def quarantined(self, provider: str) -> tuple[Quarantined, ...]:
        """Return the nodes that its last snapshot quarantines."""

    def statuses(self) -> Mapping[str, ProviderStatus]:
        """Return the status of each provider."""


class ChildSource:
    """A provider in a child process."""

    def __init__(self, name: str, host: Children, levels: Sequence[str]) -> None:
        self.name = name
        self.placements: Placements | None = None
        self._host = host
        self._levels = levels

    def refresh(self) -> bool:
        """Read the provider's HyperNodes."""
        if self._host.statuses()[self.name].last_sync is None:
            return False
        placed = placements(self._host.hypernodes(self.name), self._levels)
        quarantined = tuple(sorted({*placed.quarantined, *self._host.quarantined(self.name)}))
        found = Placements(placed.places, quarantined, placed.faults)
        if found == self.placements:
            return False
        self.placements = found
        return True

    def report(self) -> ProviderStatus:
        """Return the state."""
        status = self._host.statuses()[self.name]
        found = serving(self.name, self.placements or Placements())
        # The time changes all the time, and is a metric.
        return structs.replace(
            status,
            nodes=found.nodes,
            quarantined=found.quarantined,
            last_sync=None,
            faults=(*status.faults, *found.faults),
        )

    def lag(self, now: float) -> float:
        """Return the seconds since the last accepted event."""
        last = self._host.statuses()[self.name].last_sync
        return math.nan if last is None else max(0.0, now - last)


def serving(name: str, found: Placements) -> ProviderStatus:
    """Return the state of a provider that serves."""
    return ProviderStatus(
        name,
        ProviderState.SERVING,
        nodes=sum(map(any, found.places.values())),
        quarantined=len(found.quarantined),
        faults=tuple([fault.message for fault in found.faults[:MAX_FAULTS]]),
    )
