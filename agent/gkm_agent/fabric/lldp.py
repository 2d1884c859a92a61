"""Decode the Ethernet neighbors of this machine from `lldpcli -f json0 show neighbors details`. Pure.

The device at the other end of the cable sends all of the content, so it is bounded and checked.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from gkm.api.fabrics import DEVICE_PATTERN, MAX_PORTS, EthernetLink, LldpNeighbor
from gkm.api.grammar import listed
from gkm.gpus.values import printable
from gkm.topology.fabrics import lldpd
from gkm.topology.fabrics.lldpd import Neighbor
from gkm.topology.fabrics.program_output import OutputUnreadable
from msgspec.structs import astuple

MAX_NEIGHBORS = 4096
_SHOWN = 3
_MAX_NAME = 255  # bytes of a chassis, port or system name (IEEE 802.1AB-2016, 8.5)
_NAME = re.compile(DEVICE_PATTERN, re.ASCII)


class NotUnderstood(ValueError):
    """The text is not output of lldpcli; the message states the cause."""


@dataclass(frozen=True, slots=True)
class Links:
    """The interfaces of this machine with their Ethernet neighbors, sorted by name, and the problems in the output."""

    links: tuple[EthernetLink, ...] = ()
    problems: tuple[str, ...] = ()


def decode(output: bytes, is_hardware: Callable[[str], bool | None], own: Collection[str] = ()) -> Links:
    """Return the neighbors of the interfaces that are ports of adapters; `own` are the addresses of this machine.

    `is_hardware` returns None for an interface that it does not know: its neighbors are left out with a problem.

    The decoder skips a neighbor whose chassis is one of `own`: it is a loop, through a cable between two ports of this
    machine or through a local bridge. An interface with several neighbors has a device in between that forwards LLDP:
    the decoder takes the first neighbor by name, of switches if there is one, and reports a problem.

    Raises:
        NotUnderstood: the output is not JSON of the expected shape.
    """
    try:
        entries = [entry for entry in lldpd.decode(output) if entry.protocol in {"LLDP", ""}]
    except OutputUnreadable as error:
        raise NotUnderstood(f"the output of lldpcli is invalid: {printable(str(error), 160)}") from error
    found: dict[str, list[LldpNeighbor]] = {}
    problems: list[str] = []
    unknown: set[str] = set()
    for entry in entries[:MAX_NEIGHBORS]:
        if not _NAME.fullmatch(entry.interface):
            problems.append(f"lldpcli names an interface {printable(entry.interface, 40)!r}: skipped")
            continue
        neighbor = _neighbor(entry)
        if neighbor is not None and neighbor.chassis_id.lower() in own:
            continue
        if neighbor is None:
            problems.append(f"the neighbor on {entry.interface} sends no chassis or port id: skipped")
        elif entry.interface in found or (hardware := is_hardware(entry.interface)):
            found.setdefault(entry.interface, []).append(neighbor)
        elif hardware is None:
            unknown.add(entry.interface)
    if unknown:
        problems.append(_not_in_sys(unknown))
    if len(entries) > MAX_NEIGHBORS or len(found) > MAX_PORTS:
        problems.append(f"more than {MAX_NEIGHBORS} neighbors or {MAX_PORTS} interfaces: the rest is skipped")
    links = [_link(interface, found[interface], problems) for interface in sorted(found)[:MAX_PORTS]]
    return Links(tuple(links), tuple(problems))


def _not_in_sys(interfaces: Collection[str]) -> str:
    return (
        f"neighbors on {listed(sorted(interfaces), _SHOWN)} are left out: the agent's /sys does not have these "
        "adapters, as it is a pod's; mount the node's /sys at /sys (agent.extraVolumes)"
    )


def _link(interface: str, neighbors: list[LldpNeighbor], problems: list[str]) -> EthernetLink:
    distinct = sorted(set(neighbors), key=lambda one: (one.host, *astuple(one)))
    if len(distinct) > 1:
        problems.append(
            f"{len(distinct)} neighbors on {interface}: only the first by name is reported, switches before hosts"
        )
    return EthernetLink(interface, distinct[0])


def _neighbor(entry: Neighbor) -> LldpNeighbor | None:
    texts = (entry.chassis_id, entry.port_id, entry.system_name)
    chassis, port, system = (printable(text.strip(), _MAX_NAME) for text in texts)
    neighbor = LldpNeighbor(chassis, port, system, entry.is_host)
    return neighbor if neighbor.chassis_id and neighbor.port_id else None
