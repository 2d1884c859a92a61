"""A network of switches and host ports as frozen values, independent of the program that reported it. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from sys import intern
from typing import NamedTuple

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
_NO_HOST = "localhost"
_HOST_AND_ADAPTER = 2
AGGREGATION_NODE = "Aggregation Node"
"""Text in the description of an adapter inside a switch (SHARP aggregation node)."""
FILLED = "a survey is not whole: nodes that an earlier one showed stay"
"""The fault that `Subnet.filled` adds."""


class HostPort(NamedTuple):
    """A port of a host's adapter, with a cable to `switch`. Unknown GUIDs are empty.

    `words` may name the node: the first word of the NodeDescription, or the name that a fabric manager gives it. `host`
    tells hosts apart that are no nodes; empty if the description is a factory's. `adapter` is its name in the host.
    """

    switch: str
    port_guid: str = ""
    node_guid: str = ""
    system_guid: str = ""
    words: tuple[str, ...] = ()
    host: str = ""
    adapter: str = ""


class Link(NamedTuple):
    """All cables between two switches; `first` is the smaller identifier."""

    first: str
    second: str
    cables: int


@dataclass(frozen=True, slots=True)
class Subnet:
    """The network that one source reports. Switches have GUIDs, or names if the source has no GUIDs.

    `faults` are sentences for a person, without content of the source.
    """

    switches: Mapping[str, str]
    """The names of switches for display, by identifier."""
    ports: tuple[HostPort, ...]
    links: tuple[Link, ...]
    faults: tuple[str, ...] = ()

    def filled(self, earlier: "Subnet") -> "Subnet":
        """Return the network with the parts added that only an earlier, complete survey has.

        A port is where this survey shows it.
        """
        shown = {port.port_guid for port in self.ports}
        missing = (port for port in earlier.ports if port.port_guid not in shown)
        cables: dict[tuple[str, str], int] = {}
        for first, second, number in (*earlier.links, *self.links):
            cables[first, second] = max(number, cables.get((first, second), 0))
        links = tuple(sorted(Link(*ends, number) for ends, number in cables.items()))
        faults = tuple(dict.fromkeys((*self.faults, FILLED)))
        return Subnet({**earlier.switches, **self.switches}, (*self.ports, *missing), links, faults)


def names_in(description: str) -> tuple[tuple[str, ...], str]:
    """Return the host names in the NodeDescription of an adapter, in lower case: `words` and `host` of HostPort.

    rdma-ndd writes the name of the host and the name of the adapter. A third word is of a factory, as in `MT4129
    ConnectX7   Mellanox Technologies`, or of a person: the first one then identifies a host only if it names a node.
    """
    words = description.split(None, 2)
    if not words or not _WORD.fullmatch(words[0]):
        return (), ""
    name = words[0].lower()
    return (name,), "" if words[2:] or name == _NO_HOST else name


def adapter_in(description: str) -> str:
    """Return the name of the adapter in its NodeDescription as rdma-ndd writes it, "" if absent."""
    words = description.split(None, 2)
    return intern(words[1]) if len(words) == _HOST_AND_ADAPTER else ""
