"""A parser of the topology file that ibnetdiscover (infiniband-diags) prints: switches, their cables, and adapters.

One regular expression reads the whole text: a match is a line of a switch, or the whole block of an adapter. Lines of
other forms are ignored, as newer versions print more of them; a damaged line of a known form is a fault, with its
number. Descriptions are chosen by strangers: they may hold quotes and any byte, and stand in no message.

Reading a text of a real network takes twice its bytes of memory at most, a hostile one up to twelve times.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from gkm.api.grammar import agree, count_of
from gkm.topology.fabrics.subnet import AGGREGATION_NODE, HostPort, Link, Subnet, adapter_in, names_in

MAX_BYTES = 64 << 20
"""Limit of bytes of a topology file: 10,000 hosts with eight adapters each take 50 MB."""
MAX_LINES = 1 << 21
MAX_PORTS = 1 << 19
"""Limit of switch ports with a cable; 10,000 hosts with eight adapters need 250,000 to 410,000."""
MAX_DAMAGED = 1_000
_SHOWN = 3
_MAX_NAME = 64  # bytes of a NodeDescription (InfiniBand Architecture, 14.2.5.2)

_RECORD = re.compile(
    rb"""^(?:
      # A port of a switch: [1][ext 1]  "H-guid of the node"[1](guid of the port)  # "description" lid 1 4xNDR
      \[\d{1,3}\](?:\[[^\]\n]*\])?[ \t]+"([SHR])-([0-9a-f]{16})"\[\d{1,3}\](?:\[[^\]\n]*\])?
      (?:\(([0-9a-f]{1,16})\))?[ \t]*(?:\#[ ]"([^\n]*)")?
      # The head of a block, and the rest of the block if it is not of a switch.
    | (?:sysimgguid=0x([0-9a-f]{1,16})\r?\n(?:chassisguid=[^\n]*\n)?)?(?:switchguid=|(?:ca|rt)guid=0x([0-9a-f]{1,16})
      [^\n]*(?:\n(?:Ca|Rt)[ \t][^\n]*(?:\n\[\d{1,3}\](?:\[[^\]\n]*\])?\([^\n]*)*)?)
    | Switch[ \t]+\d+[ \t]+"S-([0-9a-f]{16})"[ \t]*(?:\#[ ]"([^\n]*)")?
    | (\[|Switch[ \t]|Ca[ \t]|Rt[ \t])
    )""",
    re.MULTILINE | re.VERBOSE,
)
_BLANK = b"\n\n"
_EARLIER = b"\n# blocks of an earlier survey:\n\n"
_AGGREGATION = AGGREGATION_NODE.encode()
# These begin with the end of the line before: a search for a fixed byte is five times as fast as one for ^.
_MARKER = re.compile(rb"\n# unanswered: (\d{1,9})(?=\n|\Z)")
# libibnetdisc: src/query_smp.c:228; umad (DR path slid 0; dlid 0; 0,1 Attr 0x11:0) bad status 110; Connection timed out
_COMPLAINT = re.compile(rb"\n((?:[\w./-]{1,99}\.c:\d{1,6}; |ib(?:warn|error|panic): )[^\n]*)")
_UNSUPPORTED = b"Attr 0xff90:"
"""A query for the vendor's speeds of a port: a device without them refuses it, and is in the output all the same."""


class NotASurvey(ValueError):
    """The text is not a topology of ibnetdiscover, or exceeds a limit; the message has no content of the text."""


def parse(text: bytes) -> Subnet:
    """Return the network that a topology file of ibnetdiscover shows.

    Raises:
        NotASurvey: the text names no switch, has too many bytes, lines or ports, or most of it is damaged.
    """
    if len(text) > MAX_BYTES:
        raise NotASurvey(f"the topology has {len(text)} bytes, the limit is {MAX_BYTES}")
    if text.count(b"\n") > MAX_LINES:
        raise NotASurvey(f"the topology has more than {MAX_LINES} lines")
    text, _, earlier = text.partition(_EARLIER)
    reader = _Reader(text)
    reader.read()
    if not reader.switches:
        raise NotASurvey(f"the text names no switch as ibnetdiscover does{reader.faults_in('; ')}")
    faults = tuple(filter(None, (reader.faults_in(""), _unanswered_in(text), reader.gaps())))
    subnet = replace(_subnet(reader), faults=faults)
    return subnet.filled(_earlier(earlier, reader)) if earlier else subnet


def with_earlier(text: bytes, whole: bytes) -> bytes:
    """Return a partial survey (text of ibnetdiscover) with the devices added that only an earlier, whole survey has.

    Blocks and not both texts: these are nearly the same, and one text fits into a ConfigMap. A block lists the cables
    of a device, so it stands in both if the device or one of its neighbors did not answer this time.
    """
    shown = {*text.split(_BLANK)}
    return text + _EARLIER + _BLANK.join(block for block in whole.split(_BLANK) if block not in shown)


def _earlier(text: bytes, newest: "_Reader") -> Subnet:
    """Return the network in the blocks of an earlier survey; `newest` has the blocks that did not change."""
    reader = _Reader(text)
    reader.read()
    reader.systems = {**newest.systems, **reader.systems}
    reader.switch_systems |= newest.switch_systems
    return _subnet(reader)


def _subnet(reader: "_Reader") -> Subnet:
    return Subnet(reader.switches, tuple(_host_ports(reader)), tuple(sorted(_links(reader.cables))))


def unanswered(errors: Iterable[bytes]) -> int:
    """Return how many lines of ibnetdiscover's standard error may mean that a part of the network is missing.

    ibnetdiscover ends with 0 although devices do not answer, and prints what it has found.
    """
    return sum(bool(line.strip()) and _UNSUPPORTED not in line for line in errors)


def marker(count: int) -> bytes:
    """Return the first line for the text of a survey in which `count` queries had no answer; b"" for 0."""
    return b"# unanswered: %d\n" % count if count else b""


class _Reader:
    """The records of one text."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._ports = 0
        self._damaged: list[int] = []
        self._guids: dict[bytes, str] = {}
        self.switches: dict[str, str] = {}
        self.cables: dict[str, Counter[str]] = {}
        """Number of cables by switch and peer, as the ports of the switch show them."""
        self.adapters: list[tuple[str, str, str, bytes]] = []
        """Switch, GUIDs of port and node, and description."""
        self.systems: dict[str, str] = {}
        """GUID of the system by GUID of the node, for each adapter that has a block; "" without a system."""
        self.switch_systems: set[str] = set()

    def read(self) -> None:
        """Read all records.

        Raises:
            NotASurvey: too many ports, or too many damaged lines.
        """
        switch = ""
        for record in _RECORD.finditer(self._text):
            kind, peer, port, description, system, adapter, head, name, damaged = record.groups()
            if kind is not None and switch:
                self._add_port(switch, kind, peer, port or b"", description or b"")
            elif head is not None:
                switch = self._switch(head)
                self.switches[switch] = _printable(name or b"")
            elif kind is not None or damaged is not None:
                self._add_damaged(record.start())
            elif adapter is not None:
                switch = ""
                self.systems[_guid(adapter)] = _guid(system or b"")
            elif system is not None:
                self.switch_systems.add(_guid(system))

    def _add_port(self, switch: str, kind: bytes, peer: bytes, port: bytes, description: bytes) -> None:
        self._ports += 1
        if self._ports > MAX_PORTS:
            raise NotASurvey(f"the topology has more than {MAX_PORTS} ports of switches with a cable")
        if kind == b"S":
            self.cables.setdefault(switch, Counter())[self._switch(peer)] += 1
        elif kind == b"H" and _AGGREGATION not in description:
            node = _guid(peer)
            self.adapters.append((switch, node if port == peer else _guid(port), node, description))

    def _add_damaged(self, start: int) -> None:
        self._damaged.append(start)
        if len(self._damaged) > MAX_DAMAGED:
            raise NotASurvey(f"the text is not what ibnetdiscover prints: {self.faults_in('')}")

    def faults_in(self, before: str) -> str:
        """Return a sentence about the damaged lines after `before`, "" without any."""
        if not self._damaged:
            return ""
        shown = [str(self._text.count(b"\n", 0, start) + 1) for start in self._damaged[:_SHOWN]]
        more = f" and {len(self._damaged) - _SHOWN} more" if len(self._damaged) > _SHOWN else ""
        return f"{before}damaged lines are ignored: {', '.join(shown)}{more}"

    def gaps(self) -> str:
        """Return a sentence about cables to switches and adapters that have no block, "" without any.

        It counts cables: a set of the devices would take much memory, and strangers write surveys.
        """
        missing = sum(
            number for peers in self.cables.values() for peer, number in peers.items() if peer not in self.switches
        )
        missing += sum(node not in self.systems for _, _, node, _ in self.adapters)
        cables = f"{count_of(missing, 'cable')} {agree(missing, 'leads', 'lead')} to devices without an entry"
        return f"it is not whole: {cables}; the file is cut, or these did not answer" if missing else ""

    def _switch(self, digits: bytes) -> str:
        """Return the GUID of a switch, always as the same object."""
        known = self._guids.get(digits)
        if known is None:
            known = self._guids[digits] = _guid(digits)
        return known


def _unanswered_in(text: bytes) -> str:
    """Return a sentence about queries without an answer, by the marker or redirected standard error; "" without any."""
    first = b"\n" + text[: text.find(b"\n") + 1]
    marked, complaints = (pattern.findall(first) + pattern.findall(text) for pattern in (_MARKER, _COMPLAINT))
    count = sum(map(int, marked)) + unanswered(complaints)
    queries = count_of(count, "query", "queries")
    return f"{queries} of ibnetdiscover had no answer: what lies behind is missing" if count else ""


def _links(cables: Mapping[str, Mapping[str, int]]) -> Iterator[Link]:
    """Yield each link once: both ends report a cable, unless the block of one end is missing."""
    nothing: Mapping[str, int] = {}
    for switch, peers in cables.items():
        for peer, number in peers.items():
            others = cables.get(peer, nothing).get(switch, 0)
            if switch <= peer or not others:
                yield Link(min(switch, peer), max(switch, peer), max(number, others))


def _host_ports(reader: _Reader) -> Iterator[HostPort]:
    names: dict[bytes, tuple[tuple[str, ...], str]] = {}
    for switch, port, node, description in reader.adapters:
        system = reader.systems.get(node, "")
        system = node if system == node else system
        if system and system in reader.switch_systems:
            continue
        words = description.split(None, 2)[:3]
        # Adapters of a host differ in the second word only: they share one object.
        key = words[0] + b" " * len(words) if words else b""
        found = names.get(key)
        if found is None:
            found = names[key] = names_in(description.decode("latin-1"))
        yield HostPort(switch, port, node, system, *found, adapter=adapter_in(description.decode("latin-1")))


def _guid(digits: bytes) -> str:
    """Return a GUID in 16 digits; "" if there is no GUID or it is zero."""
    return digits.decode().zfill(16) if digits.strip(b"0") else ""


def _printable(text: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "?" for byte in text[:_MAX_NAME])  # noqa: PLR2004 -- ASCII
