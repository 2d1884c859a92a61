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
"""The provider that is a function of the watched Nodes; all others run in a pod each."""
MEASURING = frozenset({"infiniband", "lldp", "ufm"})
"""The providers that read cables and switches; people or programs wrote down what all others read."""


def by_trust(names: Iterable[str]) -> list[str]:
    """Return providers in the order in which they count: those that measure first, then as they are listed."""
    return sorted(names, key=lambda name: name not in MEASURING)


class Action(StrEnum):
    """The effect of an event. A snapshot replaces all HyperNodes of the provider; create and update both set them."""

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
    """An event that failed. `name` is the HyperNode at fault, empty if it is the whole event.

    The provider may send the event again.
    """

    name: str
    error: str


class Events(Protocol):
    """Where a provider sends its events, from any thread, in their order."""

    def put(self, event: Event) -> None:
        """Send an event: it is applied at once, or refused with a reply.

        Raises:
            ProviderStopped: the provider must end.
            ValueError: it is no event, or larger than one may be (64 MiB).
        """


class Replies(Protocol):
    """The errors of events, after the retries. The last 1,024 that the provider has not read are kept."""

    def get(self, timeout: float | None = None) -> Reply | None:
        """Return the next reply, None after `timeout` seconds without one.

        Raises:
            ProviderStopped: the provider must end.
        """


class HyperNodeView(Protocol):
    """A live view of the HyperNodes of the cluster, of all sources, and of its Nodes. It cannot be written."""

    def list(self) -> list[HyperNode]:
        """Return all HyperNodes."""

    def get(self, name: str) -> HyperNode | None:
        """Return a HyperNode by its name."""

    def changes(self) -> Iterator[str]:
        """Yield the names of HyperNodes that change from now on, until the provider stops.

        Changes that have not been taken yet count once for each name.
        """

    def nodes(self) -> tuple[ClusterNode, ...]:
        """Return the Nodes of the cluster, which sources know by other names or by GUIDs only."""


class Provider(Protocol):
    """A source of HyperNodes. An exception of either method shows as the provider's state, and its pod restarts.

    It may have an attribute `stale_seconds`: the longest time without an event, where the configuration sets none.
    """

    name: str

    def start(self, events: Events, replies: Replies, hypernodes: HyperNodeView) -> None:
        """Send events until `stop`; returns when the provider has stopped, or runs its own threads."""

    def stop(self) -> None:
        """End `start`, from another thread, soon."""


ProviderFactory = Callable[[Mapping[str, Any], Mapping[str, bytes]], Provider]
"""Called with `config` of the provider's section and the data of its Secret."""


class ProviderStopped(Exception):
    """The provider must end: its pod stops."""


class ProviderFailed(Exception):
    """The provider cannot continue. Its message shows in the provider's state, in logs and Events.

    So the message names the kind of fault and never content of the source. All other exceptions show only their type
    and line of code.
    """
