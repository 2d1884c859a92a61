"""An example of a topology provider: leaf groups from the cables that NVIDIA NetQ reports, as `netq show lldp json`.

Each row is one end of an Ethernet cable, of a switch or a host, and does not say which. A node is a host. The end of
another host is known by its interface, which has the name that Linux gives to network adapters; ports of switches have
other names (swp1, Ethernet1/1), except for their port for management: there a switch is a host of the network for
management.
"""

from collections import Counter, defaultdict
from pathlib import Path
from threading import Event as Flag

import msgspec
from gkm.hoststate.files import UnreadableState, read_bounded
from gkm.topology.fabrics import guid_join, leaf_groups, program_output
from gkm.topology.fabrics.counted import Counted
from gkm.topology.fabrics.interfaces import is_host_interface
from gkm.topology.fabrics.network import OTHER_HOST, FabricNetwork
from gkm.topology.fabrics.rails import TooIrregular
from gkm.topology.providers import Action, Event, ProviderFailed

MAX_BYTES = 64 << 20


class Config(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """`config`: the file, how often it is read, and which interfaces of hosts and which switches count."""

    file: str
    interval_seconds: float = 10.0
    interfaces: tuple[str, ...] = ("*",)
    switches: tuple[str, ...] = ("*",)


class CableEnd(msgspec.Struct, rename="camel"):
    hostname: str | None = ""
    ifname: str | None = ""
    peer_hostname: str | None = ""
    peer_ifname: str | None = ""


class Answer(msgspec.Struct):
    lldp: list[CableEnd]
    truncated: bool = msgspec.field(default=False, name="truncatedResult")


ANSWER = msgspec.json.Decoder(Answer | list[CableEnd])


class NetQ:
    name = "netq"

    def __init__(self, config, credentials):
        try:
            self.config = msgspec.convert(config, Config)
        except msgspec.ValidationError as error:
            raise ProviderFailed(f"has an invalid config: {error}") from None
        self.counted = Counted(self.config.interfaces, self.config.switches)
        self.stopped = Flag()

    def start(self, events, replies, hypernodes):
        sent, names = None, frozenset()
        while not self.stopped.is_set():
            found = self.read([node.name for node in hypernodes.nodes()], names)
            while replies.get(timeout=0):  # an error: the event was refused, or could not be written
                sent = None
            content = found.hypernodes, found.quarantined
            if content == sent:
                events.put(Event(Action.UPDATE, (), found.faults))
            else:
                events.put(Event(Action.SNAPSHOT, found.hypernodes, found.faults, found.quarantined))
            sent = content
            names = frozenset(each.name for each in found.hypernodes)  # a group that only changes keeps its name
            self.stopped.wait(self.config.interval_seconds)

    def stop(self):
        self.stopped.set()

    def read(self, nodes, names):
        try:
            rows = decode(read_bounded(Path(self.config.file).resolve(), MAX_BYTES))
            return leaf_groups.discover(network(rows, guid_join.by_name(nodes), self.counted), nodes, names)
        except (OSError, UnreadableState, program_output.OutputUnreadable) as error:
            raise ProviderFailed(f"cannot read its file: {error}") from None
        except TooIrregular as error:
            raise ProviderFailed(f"cannot use its network: {error}") from None


def decode(text):
    found = program_output.decode(text, ANSWER, MAX_BYTES)
    if isinstance(found, Answer) and found.truncated:
        raise program_output.OutputUnreadable("NetQ has left out rows (truncatedResult): ask for fewer at a time")
    rows = found.lldp if isinstance(found, Answer) else found
    if rows and not any(row.hostname and row.peer_hostname for row in rows):
        raise program_output.OutputUnreadable("no row in it names both ends of a cable (hostname and peerHostname)")
    return rows


def network(rows, names, counted):
    """`names` are the nodes by name, "" for one that several nodes have. A cable that both ends report counts once."""
    hosts, links = defaultdict(Counter), defaultdict(Counter)
    ends = (
        (
            ((row.hostname or "").lower(), row.ifname or ""),
            ((row.peer_hostname or "").lower(), row.peer_ifname or ""),
        )
        for row in rows
    )
    cables = {(min(pair), max(pair)) for pair in ends if pair[0][0] and pair[1][0]}
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
