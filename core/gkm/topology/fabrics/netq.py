"""A decoder of `netq show lldp json`: each row is one end of an Ethernet cable, of a switch or a host. Pure.

A row does not tell switches from hosts. A node is a host. The end of another host is known by its interface, which has
the name that Linux gives to network adapters; ports of switches have other names (swp1, Ethernet1/1), except for their
port for management: there a switch is a host of the network for management.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from msgspec import Struct, field
from msgspec.json import Decoder

from gkm.topology.fabrics import program_output
from gkm.topology.fabrics.counted import EVERY_CABLE, Counted
from gkm.topology.fabrics.interfaces import is_host_interface
from gkm.topology.fabrics.network import OTHER_HOST, FabricNetwork
from gkm.topology.fabrics.program_output import OutputUnreadable

MAX_BYTES = 128 << 20
_End = tuple[str, str]


class CableEnd(Struct, frozen=True, rename="camel"):
    """One end of a cable and the other one, by the names of the devices and of their interfaces."""

    hostname: str | None = ""
    ifname: str | None = ""
    peer_hostname: str | None = ""
    peer_ifname: str | None = ""


class NetQAnswer(Struct):
    """The output. `truncated` is true if NetQ has left out rows."""

    lldp: list[CableEnd]
    truncated: bool = field(default=False, name="truncatedResult")


_ANSWER: Decoder[NetQAnswer | list[CableEnd]] = Decoder(NetQAnswer | list[CableEnd])


def decode(text: bytes) -> tuple[CableEnd, ...]:
    """Return the rows of an output.

    Raises:
        OutputUnreadable: it is not JSON of that shape, exceeds a limit, or NetQ has cut it.
    """
    found = program_output.decode(text, _ANSWER, MAX_BYTES)
    if isinstance(found, NetQAnswer) and found.truncated:
        raise OutputUnreadable("NetQ has left out rows (truncatedResult): ask for fewer at a time")
    rows = found.lldp if isinstance(found, NetQAnswer) else found
    if rows and not any(row.hostname and row.peer_hostname for row in rows):
        raise OutputUnreadable("no row in it names both ends of a cable (hostname and peerHostname)")
    return tuple(rows)


def network(rows: Iterable[CableEnd], names: Mapping[str, str], counted: Counted = EVERY_CABLE) -> FabricNetwork:
    """Return the network in rows; `names` are the nodes by name, "" for one that several nodes have.

    A cable that both ends report counts once.
    """
    hosts: dict[str, Counter[str]] = defaultdict(Counter)
    links: dict[str, Counter[str]] = defaultdict(Counter)
    cables = {(min(ends), max(ends)) for ends in map(_ends, rows) if ends[0][0] and ends[1][0]}
    for first, second in cables:
        for (device, interface), (other, port) in ((first, second), (second, first)):
            node = names.get(device)
            if other in names or is_host_interface(port) or not counted.switch(other):
                continue
            if node or is_host_interface(interface):
                if counted.adapter(interface):
                    hosts[node or OTHER_HOST + device][other] += 1
            elif node is None and counted.switch(device):
                links[device][other] += 1
    return FabricNetwork(hosts, links)


def _ends(row: CableEnd) -> tuple[_End, _End]:
    return (
        ((row.hostname or "").lower(), row.ifname or ""),
        ((row.peer_hostname or "").lower(), row.peer_ifname or ""),
    )
