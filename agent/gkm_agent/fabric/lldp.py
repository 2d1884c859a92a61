"""Neighbours on Ethernet from what `lldpcli -f json0 show neighbors details` prints. Pure.

`json0` always has lists where `json` changes its shape with the count (lldpcli(8)). Everything in it was sent by
whoever is at the other end of a cable.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import msgspec
from gkm.api import json_limits
from gkm.api.fabrics import DEVICE_PATTERN, MAX_PORTS, EthernetLink, LldpNeighbor
from gkm.gpus.values import printable
from msgspec import Struct

MAX_NEIGHBOURS = 4096
_LONGEST = 255  # of a chassis, port or system name (IEEE 802.1AB-2016, 8.5)
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
    """The answer is not what lldpcli prints; the message says why."""


@dataclass(frozen=True, slots=True)
class Links:
    """Interfaces with their neighbours, by name, and what was passed over."""

    links: tuple[EthernetLink, ...] = ()
    problems: tuple[str, ...] = ()


def decode(output: bytes, is_hardware: Callable[[str], bool], own: Collection[str] = ()) -> Links:
    """Return the neighbours of the interfaces that are ports of adapters; `own` are addresses of this very machine.

    A neighbour whose chassis is one of `own` is a loop: a cable between two of our ports, or a bridge of ours.

    An interface with several neighbours has something between it and a switch that forwards LLDP: the first by name
    is taken, and told.

    Raises:
        NotUnderstood: it is not JSON of that shape.
    """
    try:
        json_limits.check_objects(output)
        answer = msgspec.json.decode(output, type=_Document)
    except (msgspec.DecodeError, json_limits.TooManyValues, UnicodeDecodeError, RecursionError) as error:
        raise NotUnderstood(f"lldpcli's answer cannot be read: {printable(str(error), 160)}") from error
    told = [entry for part in answer.lldp for entry in part.interface if entry.via in {"LLDP", ""}]
    found: dict[str, list[LldpNeighbor]] = {}
    problems: list[str] = []
    for entry in told[:MAX_NEIGHBOURS]:
        if not _NAME.fullmatch(entry.name):
            problems.append(f"lldpcli names an interface {printable(entry.name, 40)!r}: passed over")
            continue
        neighbour = _neighbour(entry)
        if neighbour is not None and neighbour.chassis_id.lower() in own:
            continue
        if neighbour is None:
            problems.append(f"the neighbour on {entry.name} does not say who it is: passed over")
        elif entry.name in found or is_hardware(entry.name):
            found.setdefault(entry.name, []).append(neighbour)
    if len(told) > MAX_NEIGHBOURS or len(found) > MAX_PORTS:
        problems.append(f"more than {MAX_NEIGHBOURS} neighbours or {MAX_PORTS} interfaces: the rest is passed over")
    links = [_link(interface, found[interface], problems) for interface in sorted(found)[:MAX_PORTS]]
    return Links(tuple(links), tuple(problems))


def _link(interface: str, neighbours: list[LldpNeighbor], problems: list[str]) -> EthernetLink:
    distinct = sorted({(one.chassis_id, one.port_id, one.system_name) for one in neighbours})
    if len(distinct) > 1:
        problems.append(f"{len(distinct)} neighbours on {interface}: the first by name is taken")
    return EthernetLink(interface, LldpNeighbor(*distinct[0]))


def _neighbour(entry: _Interface) -> LldpNeighbor | None:
    chassis, port = next(iter(entry.chassis), _Chassis()), next(iter(entry.port), _Port())
    chassis_id, port_id, name = _first(chassis.id), _first(port.id), _first(chassis.name)
    return LldpNeighbor(chassis_id, port_id, name) if chassis_id and port_id else None


def _first(values: Sequence[_Value]) -> str:
    return printable(values[0].value.strip(), _LONGEST) if values else ""
