"""A provider that reads its whole source at intervals; all built-in providers are of this form.

It sends a snapshot when the HyperNodes have changed, or when an event was refused or not written; otherwise it reports
no change. A source that cannot be read, or is missing after a snapshot, ends it: its last HyperNodes stay in use, and
kubelet starts its pod again after a pause. Reading takes a fifth of its time at most.
"""

import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from threading import Event as Flag
from typing import Any, TypeVar, cast

import msgspec
from gkm.topology.fabrics.network import FabricDiscovery
from gkm.topology.fabrics.rails import TooIrregular
from gkm.topology.providers import Action, Event, Events, HyperNodeView, ProviderFailed, Replies
from msgspec import Struct

from gkm_operator.hypernodes.providers.view import LiveView

C = TypeVar("C", bound=Struct)
_REST = 4.0
"""Minimum pause between readings, as a multiple of the last reading's duration."""
_LEAST_STALE_SECONDS = 300.0
_CALM_SECONDS = 1.0
"""Seconds between two readings of a view that changes."""
_HEARTBEAT_SECONDS = 10.0
"""Seconds between two heartbeat events while the view does not change."""


class SourceMissing(Exception):
    """A provider's source does not exist yet. The message shows while the provider waits; it has no source content."""


@dataclass(frozen=True, slots=True)
class Known:
    """The data that a provider's `read` gets: the view of the cluster, and the names of its present HyperNodes."""

    view: LiveView
    existing: Container[str]

    @property
    def nodes(self) -> list[str]:
        """Return the names of the cluster's Nodes."""
        return [node.name for node in self.view.nodes()]


Read = Callable[[Known], FabricDiscovery]
"""Reads a source; raises ProviderFailed, SourceMissing or TooIrregular."""


class PollingProvider:
    """A provider that calls `read` every `seconds`; with `follows`, also after a change of the view.

    `timeout` is for one request, in seconds.
    """

    def __init__(self, name: str, read: Read, seconds: float, *, timeout: float = 0.0, follows: bool = False) -> None:
        self.name = name
        self.stale_seconds = max(10 * (seconds + timeout), _LEAST_STALE_SECONDS)
        self._read = read
        self._seconds = seconds
        self._follows = follows
        self._stopped = Flag()

    def start(self, events: Events, replies: Replies, hypernodes: HyperNodeView) -> None:
        """Read the source and send events with its HyperNodes, until `stop`."""
        view = cast("LiveView", hypernodes)  # built-in providers see all that there is
        found: FabricDiscovery | None = None
        sent: object = None
        names = view.earlier_names
        read = -1
        while not self._stopped.is_set():
            version, began = view.version, time.monotonic()
            try:
                if found is None or not self._follows or version != read:
                    found, read = self._read(Known(view, names)), version
            except TooIrregular as error:
                raise ProviderFailed(f"cannot use its network: {error}") from None
            except SourceMissing as missing:
                if sent is not None:
                    # Its HyperNodes become older: an event would make them look new.
                    raise ProviderFailed(str(missing)) from None
                found = None
                events.put(Event(Action.UPDATE, (), (str(missing),)))
            else:
                while replies.get(0) is not None:
                    sent = None
                content = found.hypernodes, found.quarantined
                nothing = found.hosts.nothing_placed(len(view.nodes())) if found.hosts else ""
                faults = (nothing, *found.faults) if nothing else found.faults
                if content == sent:
                    events.put(Event(Action.UPDATE, (), faults))
                else:
                    events.put(Event(Action.SNAPSHOT, found.hypernodes, faults, found.quarantined))
                sent = content
                names = frozenset(each.name for each in found.hypernodes) or names
            self._wait(view, version, _REST * (time.monotonic() - began))

    def stop(self) -> None:
        """Make `start` return; called from another thread."""
        self._stopped.set()

    def _wait(self, view: LiveView, version: int, rest: float) -> None:
        if not self._follows:
            self._stopped.wait(max(self._seconds, rest))
        elif not self._stopped.wait(max(_CALM_SECONDS, rest)):
            view.wait_for_change(version, self._seconds)


def parse_config(config: Mapping[str, Any], kind: type[C]) -> C:
    """Decode the `config` of a topology provider into its type.

    Raises:
        ProviderFailed: the configuration is not valid; the message names the key.
    """
    try:
        return msgspec.convert(config, kind)
    except msgspec.ValidationError as error:
        raise ProviderFailed(f"has an invalid config: {error}") from None


def following(name: str, read: Read) -> PollingProvider:
    """Return a provider that reads from the view of the cluster, at each change and at a slow interval."""
    return PollingProvider(name, read, _HEARTBEAT_SECONDS, follows=True)
