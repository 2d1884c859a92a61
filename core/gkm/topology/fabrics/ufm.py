"""Decode `GET /ufmRest/resources/ports` of NVIDIA UFM: ports of adapters and switches with their peers. Pure.

A row names the other end of its cable by the GUID of the node (newer versions), and by the name of the system. A
modular switch is one system with many switches in it, so names are used only where a row has no GUID and the name has
one switch. Rows without a peer are ports without a cable.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.json import Decoder

from gkm.topology.fabrics import program_output
from gkm.topology.fabrics.program_output import OutputUnreadable
from gkm.topology.fabrics.subnet import AGGREGATION_NODE, HostPort, Link, Subnet, adapter_in, names_in

MAX_PAGE_BYTES = 100 << 20
"""Limit of bytes that the provider reads of one answer. A row takes 1.5 kB."""
MAX_ROWS = 1 << 20
_GUID = re.compile(r"(?:0x)?([0-9a-f]{1,16})", re.ASCII)
_COMPUTER, _SWITCH = "Computer", "Switch"
_NO_PEER = frozenset({"", "n/a", "none"})
_SEVERAL = ""


class PortRow(Struct, frozen=True):
    """One port in an answer of UFM. `description` is "Computer IB Port" or "Switch IB Port"."""

    description: str | None = ""
    system_name: str | None = ""
    node_description: str | None = ""
    guid: str | None = ""
    system_id: str | None = field(default="", name="systemID")
    peer_node_name: str | None = ""
    peer_node_guid: str | None = ""
    peer_guid: str | None = ""


class _Page(Struct):
    data: list[PortRow]
    total_resources: int | None = None


_PAGE: Decoder[list[PortRow] | _Page] = Decoder(list[PortRow] | _Page)


class Page(NamedTuple):
    """The rows of one answer of UFM, and the number of rows of all its answers together, 0 if it does not say."""

    rows: tuple[PortRow, ...]
    total: int = 0


def decode(page: bytes) -> Page:
    """Return one answer of UFM.

    Raises:
        OutputUnreadable: it is not JSON of that shape, or has too many bytes or values.
    """
    found = program_output.decode(page, _PAGE, MAX_PAGE_BYTES)
    rows, total = (found.data, found.total_resources) if isinstance(found, _Page) else (found, None)
    if rows and not any((row.description or "").startswith((_COMPUTER, _SWITCH)) for row in rows):
        raise OutputUnreadable(f"no row in it is a port of a {_COMPUTER} or a {_SWITCH} (description)")
    return Page(tuple(rows), max(total or 0, 0))


def subnet(pages: Iterable[Page]) -> Subnet:
    """Return the network from all answers, in any order; a fault in it says that some are missing.

    Without rows of switches (`?sys_type=Computer`), it has the leaves only.

    Raises:
        OutputUnreadable: there are too many rows.
    """
    reader = _Reader()
    for page in pages:
        reader.total = max(reader.total, page.total)
        for row in page.rows:
            reader.add(row)
    pairs = Counter((switch, peer) for switch, *named in reader.links if (peer := reader.switch(*named)))
    # Both ends report a cable.
    ends = {(min(pair), max(pair)) for pair in pairs if pair[1] in reader.switches}
    links = tuple(Link(*pair, max(pairs[pair], pairs[pair[::-1]])) for pair in sorted(ends))
    ports = tuple(sorted(reader.host_ports()))
    return Subnet({**{port.switch: "" for port in ports}, **reader.switches}, ports, links, tuple(reader.faults()))


class _Reader:
    """The content of rows, until the names of all switches are known."""

    def __init__(self) -> None:
        self._rows = self.total = 0
        self._by_name: dict[str, str] = {}
        self._systems: set[str] = set()
        """GUIDs of systems that are switches."""
        self.switches: dict[str, str] = {}
        self.links: list[tuple[str, str, str]] = []
        """Switch, and GUID and name of its peer."""
        self.adapters: list[tuple[HostPort, str, str]] = []
        """Port without its switch, and GUID and name of that."""

    def add(self, row: PortRow) -> None:
        self._rows += 1
        if self._rows > MAX_ROWS:
            raise OutputUnreadable(f"UFM has more than {MAX_ROWS} ports")
        kind, name = row.description or "", (row.system_name or "").strip()
        guid, system = _guid(row.guid), _guid(row.system_id)
        peer = (_guid(row.peer_node_guid) or _guid(row.peer_guid), (row.peer_node_name or "").strip())
        if kind.startswith(_SWITCH) and (guid or name):
            switch = guid or name
            # Take the first of several names in alphabetical order, so that the order of rows does not matter.
            self.switches[switch] = min(self.switches.get(switch, name), name)
            self._systems.add(system)
            if name and self._by_name.setdefault(name, switch) != switch:
                self._by_name[name] = _SEVERAL
            self.links.append((switch, *peer))
        elif kind.startswith(_COMPUTER) and AGGREGATION_NODE not in (row.node_description or ""):
            words, host = names_in(name)
            more, other = names_in(row.node_description or "")
            adapter = adapter_in(row.node_description or "")
            port = HostPort("", guid, "", system, tuple(dict.fromkeys((*words, *more))), host or other, adapter)
            self.adapters.append((port, *peer))

    def switch(self, guid: str, name: str) -> str:
        """Return the switch with this GUID or name; "" if there is no such switch, or several have the name."""
        if guid:
            return guid
        return "" if name.lower() in _NO_PEER else self._by_name.get(name, name)

    def host_ports(self) -> Iterator[HostPort]:
        for port, guid, name in self.adapters:
            switch = self.switch(guid, name)
            # Two hosts may be connected without a switch. The adapter of an aggregation node is part of its switch.
            known = switch in self.switches or not self.switches
            if switch and known and not (port.system_guid and port.system_guid in self._systems):
                yield port._replace(switch=switch)

    def faults(self) -> Iterator[str]:
        """Yield how many ports do not count, and why."""
        if (missing := self.total - self._rows) > 0:
            yield f"{missing} of {self.total} ports of UFM are in none of its answers: pages are missing"
        cabled = [(guid, name) for _, guid, name in self.adapters if guid or name.lower() not in _NO_PEER]
        found = [self.switch(guid, name) for guid, name in cabled]
        if several := found.count(_SEVERAL):
            yield f"{several} ports of hosts do not count: UFM names a system of several switches for each"
        hosts = {name for port, _, _ in self.adapters for name in (port.port_guid, *port.words)}
        known = {_SEVERAL, *self.switches, *hosts}
        if self.switches and (absent := sum(switch not in known and switch.lower() not in hosts for switch in found)):
            yield f"{absent} ports of hosts do not count: their switches have no row, so pages may be missing"


def _guid(text: str | None) -> str:
    found = _GUID.fullmatch((text or "").strip().lower())
    return found[1].zfill(16) if found and found[1].strip("0") else ""
