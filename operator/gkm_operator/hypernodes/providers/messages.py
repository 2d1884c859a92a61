"""The messages between the controllers and the child process of a provider, as JSON in frames, with their limits.

Both sides import this. What a child sends is foreign: its length and the number of its values are limited before a
decoder allocates objects.
"""

from typing import Any, Literal

import msgspec
from gkm.topology.hypernodes import HyperNode
from gkm.topology.providers import ClusterNode, Event, Reply
from msgspec import Struct

MAX_FRAME_BYTES = 64 << 20
"""A snapshot of 12,500 nodes with names of 20 characters has 1 MiB."""
MAX_VALUES = 1_500_000
"""Values in a frame. 50,000 HyperNodes with 200,000 members have at most 1,250,000 (intake.py)."""
MAX_FAILURE = 300
"""Characters of a failure that are shown."""
STOP_SECONDS = 8.0
"""How long a provider has to stop. The controllers have 20 seconds in all (deploy/base)."""


class InvalidMessage(ValueError):
    """A child sent bytes that are no message; the text names no content."""


Kind = Literal["HyperNode", "Node", "Ports", "Neighbors", "Survey"]
Key = tuple[str, str]
"""Kind and name of what a child sees."""


class Written(Struct, frozen=True):
    """The names of domains that schedulers see (of our HyperNodes, and in labels of nodes), and how they are made."""

    names: frozenset[str] = frozenset()
    levels: tuple[str, ...] = ()
    hashed: bool = False


class Start(Struct, frozen=True):
    """The first message to a child. `path` is a directory of packages, empty for none."""

    name: str
    config: dict[str, Any]
    credentials: dict[str, bytes]
    path: str
    max_memory_bytes: int
    written: Written = Written()


class AgentReport(Struct, frozen=True):
    """What an agent reports of a node, for built-in providers.

    Ports and Neighbors are a NodeFabric in JSON without the rest; a Survey is the text in its ConfigMap.
    """

    kind: Kind
    name: str
    data: bytes


class ToChild(Struct, frozen=True, omit_defaults=True):
    """A message to a child. `synced`: with this message its view has all that the controllers know."""

    start: Start | None = None
    hypernodes: tuple[HyperNode, ...] = ()
    nodes: tuple[ClusterNode, ...] = ()
    observed: tuple[AgentReport, ...] = ()
    deleted: tuple[Key, ...] = ()
    synced: bool = False
    reply: Reply | None = None
    stop: bool = False


class FromChild(Struct, frozen=True, omit_defaults=True):
    """A message of a child: an event, or why it ends. `stale_seconds`: how long it sends nothing at most, 0 unknown."""

    event: Event | None = None
    stale_seconds: float = 0.0
    failure: str = ""


_FROM_CHILD = msgspec.json.Decoder(FromChild)
_TO_CHILD = msgspec.json.Decoder(ToChild)


def encode(message: ToChild | FromChild) -> bytes:
    """Return a message as bytes."""
    return msgspec.json.encode(message)


def decode_from_child(data: bytes) -> FromChild:
    """Return the message that a child has sent.

    Raises:
        InvalidMessage: it has another form, or holds more than MAX_VALUES values.
    """
    # Each value and each key follows one of these characters.
    if sum(data.count(one) for one in b",:[{") > MAX_VALUES:
        raise InvalidMessage(f"a message with more than {MAX_VALUES} values")
    try:
        return _FROM_CHILD.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        # The decoder's own words may quote the text.
        raise InvalidMessage("a message that is no event") from None


def decode_to_child(data: bytes) -> ToChild:
    """Return a message of the controllers."""
    return _TO_CHILD.decode(data)
