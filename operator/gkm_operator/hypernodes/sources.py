"""The configured providers as sources of the tree: the placements of nodes, and a state for people.

A provider that fails keeps its last placements.
"""

import logging
import math
import time
from collections.abc import Sequence
from threading import Lock
from typing import Protocol

from gkm.api.meta import utc_time
from gkm.api.provider_trees import ProviderTreeSpec
from gkm.api.topology_settings import Topology
from gkm.api.topology_status import ProviderState, ProviderStatus
from gkm.hoststate.escaping import escape
from gkm.hoststate.logs import fields
from gkm.topology.labels import label_placements
from gkm.topology.placements import Placements, placements
from gkm.topology.provider_trees import InvalidTree, Refused, checked
from msgspec import structs

from gkm_operator.hypernodes.watcher import TopologyWatcher

_LOG = logging.getLogger(__name__)

POD_LABEL = "gkm.io/provider"
"""The label of a provider's pods, with its name (deploy/chart)."""
HEARTBEAT_STALE_SECONDS = 180.0
"""Seconds without a heartbeat after which a provider is stale; a pod writes every 30 s."""
_SLACK = 60.0
"""Seconds by which an observed time may be late: it is written with the next heartbeat."""
_UNLISTED = "waits for the list of providertrees: if it does not come, the controllers' log says why"
_DECODING = Lock()
"""Lets only one tree be unpacked at a time: each may take 32 MiB."""
MAX_FAULTS = 8
"""Limit of sentences about a provider's data in the report."""


class Source(Protocol):
    """A provider as a source of the tree. `placements` is None until it has served once."""

    name: str
    placements: Placements | None

    def refresh(self) -> bool:
        """Read changes of the source; return whether the placements of nodes changed. May take minutes.

        Only one thread at a time may call it.
        """

    def report(self) -> ProviderStatus:
        """Return the state of the provider for the report, without content of its source."""

    def lag(self) -> float:
        """Return the age of the data in seconds; NaN before the first data."""


class LabelSource:
    """The built-in source `labels`, which reads the labels of watched Nodes."""

    def __init__(self, watcher: TopologyWatcher, settings: Topology) -> None:
        self.name = "labels"
        self.placements: Placements | None = None
        self._watcher = watcher
        self._settings = settings
        self._version = -1

    def refresh(self) -> bool:
        """Read the labels of all Nodes if a Node has changed; return whether the placements changed."""
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
        """Return the state of the source for the report."""
        if self.placements is None:
            return ProviderStatus(self.name, ProviderState.STARTING, reason="waits for the list of nodes")
        return serving(self.name, self.placements)

    def lag(self) -> float:
        """Return 0: a watch delivers every change at once."""
        return math.nan if self.placements is None else 0.0


class LastChange:
    """When a time text in an object last changed, in seconds since 1970.

    A change that this process sees happens now, independent of the clock of the other machine. For the first value,
    which may be old, the time itself is used, but never a later time than now.
    """

    def __init__(self) -> None:
        self.text: str | None = None
        self.at = -math.inf
        self._is_first = True

    def observe(self, text: str | None, now: float) -> None:
        """Compare with the text that the object has now; None if the object has no value yet."""
        if text == self.text:
            return
        moment = utc_time(text)
        if moment is None:
            self.at = -math.inf
        else:
            self.at = min(moment.timestamp(), now) if self._is_first else now
        self.text = text
        self._is_first = False


class ProviderSource:
    """A provider that runs in a pod and writes a ProviderTree, as a source of the tree.

    An unusable ProviderTree changes only the report; the placements stay.
    """

    def __init__(self, name: str, watcher: TopologyWatcher, levels: Sequence[str]) -> None:
        self.name = name
        self.placements: Placements | None = None
        self.names: frozenset[str] = frozenset()
        """The names of the HyperNodes in the tree in use."""
        self.set_aside = ""
        """Why the tree of the present revision does not count, as a predicate."""
        self._watcher = watcher
        self._levels = levels
        self._now = time.time
        self._read: tuple[str, int, str] | None = None
        self._heartbeat, self._observed = LastChange(), LastChange()

    @property
    def revision(self) -> int | None:
        """Return the revision of the ProviderTree that was read last, None before the first read."""
        return self._read[1] if self._read is not None else None

    def refresh(self) -> bool:
        """Read the ProviderTree; return whether the placements changed."""
        found = self._watcher.provider_trees.get(self.name)
        if found is None:
            return False
        spec = found.spec
        self._heartbeat.observe(spec.heartbeat_time, self._now())
        self._observed.observe(spec.observed_time, self._now())
        present = found.metadata.uid, spec.revision, spec.tree
        if not spec.revision or present == self._read:
            return False
        self._read = present
        try:
            with _DECODING:
                tree = checked(spec.tree)
        except (InvalidTree, Refused) as error:
            self.set_aside = (
                f"has a tree that is set aside, revision {spec.revision}: {error}; its last good one is still used"
            )
            _LOG.warning(
                "unusable tree of a topology provider ignored, its last good one stays in use",
                extra=fields(provider=self.name, revision=spec.revision, why=str(error)),
            )
            return False
        self.set_aside = ""
        self.names = frozenset(tree.hypernodes)
        placed = placements(tree.hypernodes.values(), self._levels, tree.quarantined)
        if placed == self.placements:
            return False
        self.placements = placed
        return True

    def report(self) -> ProviderStatus:
        """Return the state of the provider for the report."""
        state, reason = self._state()
        found = self._watcher.provider_trees.get(self.name)
        spec = found.spec if found is not None else ProviderTreeSpec()
        placed = serving(self.name, self.placements or Placements())
        return structs.replace(
            placed,
            state=state,
            reason=escape(reason),
            refused=spec.refused,
            refusal=escape(spec.refusal),
            hypernodes=len(self.names),
            faults=(*map(escape, spec.faults), *placed.faults),
        )

    def lag(self) -> float:
        """Return the seconds since the provider last read its source."""
        return math.nan if self.placements is None else max(0.0, self._now() - self._observed.at)

    def _state(self) -> tuple[ProviderState, str]:
        found = self._watcher.provider_trees.get(self.name)
        if found is None:
            return self._absent()
        if self.set_aside or found.spec.state == "Failed":
            return ProviderState.FAILED, self.set_aside or found.spec.reason
        if stale := self._stale(found.spec):
            return ProviderState.STALE, stale
        serves = self.placements is not None and found.spec.state == "Serving"
        return ProviderState.SERVING if serves else ProviderState.STARTING, found.spec.reason

    def _absent(self) -> tuple[ProviderState, str]:
        if not self._watcher.provider_trees.synced.is_set():
            return ProviderState.STARTING, _UNLISTED
        pods = f"kubectl -n gkm-system get pods -l {POD_LABEL}={self.name}"
        if self.placements is None:
            return ProviderState.STARTING, f"has written no ProviderTree yet: does its pod run? {pods}"
        return (
            ProviderState.FAILED,
            f"has no ProviderTree any more, and its last tree is still used: does its pod run? {pods}",
        )

    def _stale(self, spec: ProviderTreeSpec) -> str:
        """Return why the tree is stale, "" if it is not. The times stand in it, and no ages: it changes seldom."""
        now = self._now()
        if now - self._heartbeat.at > HEARTBEAT_STALE_SECONDS:
            return f"has not written since {self._heartbeat.text}: its pod may be gone; its last tree is still used"
        if self.placements is not None and spec.stale_seconds and now - self._observed.at > spec.stale_seconds + _SLACK:
            return f"has not read its source since {self._observed.text}; its last tree is still used"
        return ""


def serving(name: str, found: Placements) -> ProviderStatus:
    """Return the state for the report of a provider that serves these placements."""
    return ProviderStatus(
        name,
        ProviderState.SERVING,
        nodes=sum(map(any, found.places.values())),
        quarantined=len(found.quarantined),
        faults=tuple([fault.message for fault in found.faults[:MAX_FAULTS]]),
    )
