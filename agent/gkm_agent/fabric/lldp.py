"""A decoder for the Ethernet neighbors that `lldpcli -f json0 show neighbors details` prints. Pure.

`json0` always has lists where the shape of `json` depends on the count (lldpcli(8)). The device at the other end of the
cable sends all of the content, so the decoder bounds and checks it.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import msgspec
from gkm.api import json_limits
from gkm.api.fabrics import DEVICE_PATTERN, MAX_PORTS, EthernetLink, LldpNeighbor
from gkm.gpus.values import printable
from msgspec import Struct

MAX_NEIGHBORS = 4096
_MAX_NAME = 255  # bytes of a chassis, port or system name (IEEE 802.1AB-2016, 8.5)
_NAME = re.compile(DEVICE_PATTERN, re.ASCII)


class _Value(Struct):
    value: str = ""


class _Chassis(Struct):
    id: tuple[_Value, ...] = ()
    name: tuple[_Value, ...] = ()


class _Port(Struct):
    id: tuple[_Value, ...] = ()


class _Interface(Struct):
    name: str = ""
    via: str = ""
    chassis: tuple[_Chassis, ...] = ()
    port: tuple[_Port, ...] = ()


class _Lldp(Struct):
    interface: tuple[_Interface, ...] = ()


class _Document(Struct):
    lldp: tuple[_Lldp, ...] = ()


class NotUnderstood(ValueError):
    """The output is not the output of lldpcli; the message states the cause."""


@dataclass(frozen=True, slots=True)
class Links:
    """Interfaces with their neighbors, sorted by name, and the problems in the output."""

    links: tuple[EthernetLink, ...] = ()
    problems: tuple[str, ...] = ()


def decode(output: bytes, is_hardware: Callable[[str], bool], own: Collection[str] = ()) -> Links:
    """Return the neighbors of the interfaces that are ports of adapters; `own` are the addresses of this machine.

    The decoder skips a neighbor whose chassis is one of `own`: it is a loop, through a cable between two ports of this
    machine or through a local bridge. An interface with several neighbors has a device in between that forwards LLDP:
    the decoder takes the first neighbor by name and reports a problem.

    Raises:
        NotUnderstood: the output is not JSON of the expected shape.
    """
    try:
        json_limits.check_objects(output)
        answer = msgspec.json.decode(output, type=_Document)
    except (msgspec.DecodeError, json_limits.TooManyValues, UnicodeDecodeError, RecursionError) as error:
        raise NotUnderstood(f"the output of lldpcli is invalid: {printable(str(error), 160)}") from error
    entries = [entry for part in answer.lldp for entry in part.interface if entry.via in {"LLDP", ""}]
    found: dict[str, list[LldpNeighbor]] = {}
    problems: list[str] = []
    for entry in entries[:MAX_NEIGHBORS]:
        if not _NAME.fullmatch(entry.name):
            problems.append(f"lldpcli names an interface {printable(entry.name, 40)!r}: skipped")
            continue
        neighbor = _neighbor(entry)
        if neighbor is not None and neighbor.chassis_id.lower() in own:
            continue
        if neighbor is None:
            problems.append(f"the neighbor on {entry.name} sends no chassis or port id: skipped")
        elif entry.name in found or is_hardware(entry.name):
            found.setdefault(entry.name, []).append(neighbor)
    if len(entries) > MAX_NEIGHBORS or len(found) > MAX_PORTS:
        problems.append(f"more than {MAX_NEIGHBORS} neighbors or {MAX_PORTS} interfaces: the rest is skipped")
    links = [_link(interface, found[interface], problems) for interface in sorted(found)[:MAX_PORTS]]
    return Links(tuple(links), tuple(problems))


def _link(interface: str, neighbors: list[LldpNeighbor], problems: list[str]) -> EthernetLink:
    distinct = sorted({(one.chassis_id, one.port_id, one.system_name) for one in neighbors})
    if len(distinct) > 1:
        problems.append(f"{len(distinct)} neighbors on {interface}: only the first by name is reported")
    return EthernetLink(interface, LldpNeighbor(*distinct[0]))


def _neighbor(entry: _Interface) -> LldpNeighbor | None:
    chassis, port = next(iter(entry.chassis), _Chassis()), next(iter(entry.port), _Port())
    chassis_id, port_id, name = _first(chassis.id), _first(port.id), _first(chassis.name)
    return LldpNeighbor(chassis_id, port_id, name) if chassis_id and port_id else None


def _first(values: Sequence[_Value]) -> str:
    return printable(values[0].value.strip(), _MAX_NAME) if values else ""
