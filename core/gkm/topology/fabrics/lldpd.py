"""Decode the neighbors of a node from the output of `lldpcli -f json0` or `lldpcli -f json` (lldpcli(8)). Pure.

`json0` always has lists where the shape of `json` depends on the number of interfaces, and on whether the neighbor has
a name. The device at the other end of a cable sends the content: it is bounded here, and checked where it is used.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec.json import Decoder

from gkm.api import json_limits
from gkm.topology.fabrics import program_output
from gkm.topology.fabrics.interfaces import is_host_interface
from gkm.topology.fabrics.program_output import OutputUnreadable

MAX_BYTES = 64 << 20
"""Limit of bytes of a file with the neighbors of several nodes; a node with eight cables takes 10 kB."""

_FORWARDING = frozenset({"bridge", "router", "repeater", "other"})
_INTERFACE = re.compile(r"[A-Za-z0-9_.-]{1,15}", re.ASCII)  # IFNAMSIZ of Linux


class Neighbor(NamedTuple):
    """A network neighbor: the device at the other end of a cable, as it announces itself by LLDP; missing texts are "".

    `is_host`: it announces a station without bridge and router, or names its port as a host does.
    """

    interface: str
    protocol: str
    chassis_id: str
    port_id: str
    system_name: str
    is_host: bool = False


def decode(text: bytes) -> tuple[Neighbor, ...]:
    """Return the neighbors of one node from the output of lldpcli.

    Raises:
        OutputUnreadable: the text has neither format.
    """
    return _neighbors(_loaded(text), "$")


def decode_nodes(text: bytes) -> Mapping[str, tuple[Neighbor, ...]]:
    """Return the neighbors of each node from one file: an object with an output of lldpcli for each node name.

    Raises:
        OutputUnreadable: the text is no such object; the message has the number of the node in the file.
    """
    loaded = _loaded(text)
    if not isinstance(loaded, dict) or "lldp" in loaded:
        raise OutputUnreadable("it is not an object of nodes, each with an output of lldpcli")
    found = {node: _neighbors(value, f"$[{number}]") for number, (node, value) in enumerate(loaded.items())}
    if any(found.values()) and not any(neighbor.chassis_id for each in found.values() for neighbor in each):
        raise OutputUnreadable("no neighbor in the output has a chassis with an id")
    return found


def _loaded(text: bytes) -> object:
    return program_output.decode(text, Decoder(object), MAX_BYTES, json_limits.check)


def _neighbors(document: object, where: str) -> tuple[Neighbor, ...]:
    if not isinstance(document, dict) or not isinstance(document.get("lldp"), dict | list):
        raise OutputUnreadable(f"{where} is not an output of lldpcli: it has no object or list `lldp`")
    entries = (entry for part in _items(document["lldp"]) for entry in _items(_get(part, "interface")))
    return tuple(_neighbor(name, entry) for each in entries for name, entry in _named(each))


def _items(value: object) -> list[object]:
    """Return the items of a list, and of one object in place of a list."""
    return value if isinstance(value, list) else [value] if isinstance(value, dict) else []


def _named(entry: object) -> Iterator[tuple[str, object]]:
    """Yield the interfaces of an entry: json has their names as keys, json0 as a field."""
    if isinstance(entry, dict):
        name = entry.get("name")
        yield from [(name, entry)] if isinstance(name, str) else entry.items()


def _neighbor(interface: str, entry: object) -> Neighbor:
    chassis, name = _first(_get(entry, "chassis")), ""
    # json has the name of the neighbor as key of its chassis, if there is one.
    if isinstance(chassis, dict) and len(chassis) == 1 and not _text(chassis.get("id")):
        ((name, chassis),) = chassis.items()
    port = _first(_get(entry, "port"))
    return Neighbor(
        interface,
        _text(_get(entry, "via")),
        _text(_get(chassis, "id")),
        _text(_get(port, "id")),
        name or _text(_get(chassis, "name")),
        _is_station(chassis) or _has_host_port(port),
    )


def _is_station(chassis: object) -> bool:
    enabled = {
        _text(_get(each, "type")).lower()
        for each in _items(_get(chassis, "capability"))
        if _get(each, "enabled") in (True, "on")
    }
    return "station" in enabled and enabled.isdisjoint(_FORWARDING)


def _has_host_port(port: object) -> bool:
    """Return whether a port with an address as its id, as lldpd has it on hosts, is described as an adapter."""
    described = _text(_get(port, "descr"))
    return (
        _text_of(_get(port, "id"), "type") == "mac"
        and _INTERFACE.fullmatch(described) is not None
        and (is_host_interface(described))
    )


def _get(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, dict) else None


def _first(value: object) -> object:
    return next(iter(value), None) if isinstance(value, list) else value


def _text(value: object) -> str:
    """Return a text, also as the value of an object, or of the first object of a list."""
    return _text_of(value, "value")


def _text_of(value: object, key: str) -> str:
    value = _first(value)
    value = value.get(key) if isinstance(value, dict) else value
    return value if isinstance(value, str) else ""
