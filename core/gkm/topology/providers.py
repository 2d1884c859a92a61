"""The contract of topology providers, after Volcano's design document "HyperNode Lifecycle Management".

A provider turns one source, such as a fabric manager, into HyperNodes. A class or a function takes the provider's
configuration and credentials and returns a Provider. Each provider runs in its own pod, as
`gkm-operator provider --class module:Class` (docs/reference/topology-providers.md).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct

from gkm.topology.hypernodes import HyperNode
from gkm.topology.quarantine import Quarantined

LABELS = "labels"
"""The provider that reads labels of watched Nodes; every other provider runs in a pod."""
MEASURING = frozenset({"infiniband", "lldp", "ufm"})
"""Providers that read cables and switches; other providers read what people or programs wrote."""


def by_trust(names: Iterable[str]) -> list[str]:
    """Return names of providers in the order of trust: providers that measure first, then in the listed order."""
    return sorted(names, key=lambda name: name not in MEASURING)


class Action(StrEnum):
    """The action of a provider's event. A snapshot replaces all its HyperNodes; create and update set single ones."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    SNAPSHOT = "snapshot"


class ClusterNode(Struct, frozen=True):
    """A Node of the cluster, with the GUIDs of its InfiniBand ports and adapters as its NodeFabric has them."""

    name: str
    guids: tuple[str, ...] = ()


class Event(Struct, frozen=True):
    """A change, applied as a whole or not at all. The first event with HyperNodes after each start is a snapshot.

    An event may change several HyperNodes: a member moves when one event updates its old and its new parent. For a
    delete only the names count. An update without HyperNodes reports that the source was read and has not changed;
    before the first snapshot, that there is no source yet. `faults` are sentences about the source for a person,
    without content of it; they show in the provider's state until the next event. `quarantined` nodes of a snapshot are
    in no HyperNode because of a contradiction.
    """

    action: Action
    hypernodes: tuple[HyperNode, ...]
    faults: tuple[str, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()


class Reply(Struct, frozen=True):
    """The error of a provider's event. `name` is the faulty HyperNode, empty if the whole event is refused.

    The provider may send the event again.
    """

    name: str
    error: str


class Events(Protocol):
    """The queue to which a provider sends events, from any thread; their order is kept."""

    def put(self, event: Event) -> None:
        """Send an event; it is applied as a whole, or a reply says why not.

        Raises:
            ProviderStopped: the provider must end.
            ValueError: the event is invalid, or larger than 64 MiB.
        """


class Replies(Protocol):
    """Errors of events for the provider to read; the last 1,024 unread ones are kept."""

    def get(self, timeout: float | None = None) -> Reply | None:
        """Return the next error, None if there is none within `timeout` seconds.

        Raises:
            ProviderStopped: the provider must end.
        """


class HyperNodeView(Protocol):
    """A read-only, live view of all HyperNodes and Nodes of the cluster."""

    def list(self) -> list[HyperNode]:
        """Return all HyperNodes."""

    def get(self, name: str) -> HyperNode | None:
        """Return a HyperNode by its name, None if absent."""

    def changes(self) -> Iterator[str]:
        """Yield the name of each HyperNode that changes from now on, until the provider stops.

        Changes that have not been taken yet count once for each name.
        """

    def nodes(self) -> tuple[ClusterNode, ...]:
        """Return the Nodes of the cluster, with names and GUIDs by which a source may know them."""


class Provider(Protocol):
    """A source of HyperNodes. An exception of either method shows as the provider's state, and its pod restarts.

    It may have an attribute `stale_seconds`: the longest time without an event, where the configuration sets none.
    """

    name: str

    def start(self, events: Events, replies: Replies, hypernodes: HyperNodeView) -> None:
        """Send events until `stop`; returns when the provider has stopped, or runs its own threads."""

    def stop(self) -> None:
        """Make `start` end soon; called from another thread."""


ProviderFactory = Callable[[Mapping[str, Any], Mapping[str, bytes]], Provider]
"""Called with the provider's `config` and the data of its Secret; returns the Provider."""


class ProviderStopped(Exception):
    """Events and Replies raise this when the provider must end because its pod stops."""


class ProviderFailed(Exception):
    """A provider raises this if it cannot continue. The message shows in the provider's state, in logs and Events.

    So the message names the kind of fault and never content of the source. All other exceptions show only their type
    and line of code.
    """
