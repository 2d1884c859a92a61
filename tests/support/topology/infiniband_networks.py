"""InfiniBand networks for tests and benches, made from a few numbers and a seed, as ibnetdiscover prints them."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

SPEED = "4xNDR"
Cable = tuple[str, str]


@dataclass(frozen=True)
class Rails:
    """A rail-optimised network of up to three levels of switches.

    Each group of `hosts_each` hosts has a leaf for each rail; the adapters of a host are spread over the rails. So one
    rail is a classic fat tree. `spines` spines for each rail of a pod connect its `groups` groups; each of `cores`
    cores connects all spines of the same number.
    """

    pods: int = 1
    groups: int = 2
    hosts_each: int = 4
    rails: int = 4
    spines: int = 2
    cores: int = 0
    adapters: int = 0
    """Of a host; 0 is one for each rail."""
    seed: int = 0

    @property
    def hosts(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield the name of each host, with its pod, its group there and its number in the group."""
        for pod in range(self.pods):
            for group in range(self.groups):
                for number in range(self.hosts_each):
                    yield f"gpu-{pod:02}-{group:03}-{number:03}", pod, group, number


@dataclass
class Cabling:
    """Switches by GUID, and cables that a test may add and remove. An adapter has one port, and its GUID."""

    switches: dict[str, str] = field(default_factory=dict)
    descriptions: dict[str, str] = field(default_factory=dict)
    """Of adapters, by GUID."""
    plugged: list[Cable] = field(default_factory=list)
    """Adapter and switch."""
    links: list[Cable] = field(default_factory=list)
    """Two switches."""
    seed: int = 0


def leaf_guid(pod: int, group: int, rail: int) -> str:
    return f"2c5e01{pod:02x}{group:04x}{rail:04x}"


def spine_guid(pod: int, rail: int, spine: int) -> str:
    return f"2c5e02{pod:02x}{rail:04x}{spine:04x}"


def core_guid(spine: int, core: int) -> str:
    return f"2c5e0300{spine:04x}{core:04x}"


def adapter_guid(pod: int, group: int, number: int, rail: int) -> str:
    return f"e09d{pod:02x}{group:04x}{number:04x}{rail:02x}"


def cabling(network: Rails) -> Cabling:
    made = Cabling(seed=network.seed)
    rails = [(pod, rail) for pod in range(network.pods) for rail in range(network.rails)]
    for pod, rail in rails:
        for group in range(network.groups):
            made.switches[leaf_guid(pod, group, rail)] = f"MF0;leaf-{pod:02}-{group:03}-{rail}:MQM9701/U1"
        for spine in range(network.spines):
            guid = spine_guid(pod, rail, spine)
            made.switches[guid] = f"MF0;spine-{pod:02}-{rail}-{spine:03}:MQM9701/U1"
            made.links += [(leaf_guid(pod, group, rail), guid) for group in range(network.groups)]
            made.links += [(guid, core_guid(spine, core)) for core in range(network.cores)]
    for spine in range(network.spines):
        for core in range(network.cores):
            made.switches[core_guid(spine, core)] = f"MF0;core-{spine:03}-{core:03}:MQM9701/U1"
    for name, pod, group, number in network.hosts:
        for adapter in range(network.adapters or network.rails):
            guid = adapter_guid(pod, group, number, adapter)
            made.descriptions[guid] = f"{name} mlx5_{adapter}"
            made.plugged.append((guid, leaf_guid(pod, group, adapter % network.rails)))
    return made


def topology_file(network: Cabling) -> bytes:
    """Return the topology file, with the switches and the ports of each in a random order."""
    order = random.Random(network.seed)
    ports: dict[str, list[str]] = {guid: [] for guid in network.switches}
    for first, second in network.links:
        for guid, peer in ((first, second), (second, first)):
            ports[guid].append(f'"S-{peer}"[{len(ports[peer]) + 1}]\t\t# "{network.switches[peer]}" lid 9 {SPEED}')
    for guid, switch in network.plugged:
        ports[switch].append(f'"H-{guid}"[1]({guid}) \t\t# "{network.descriptions[guid]}" lid 7 {SPEED}')
    lines = ["#", "# Topology file: generated on Wed Aug  6 16:11:23 2025", "#", ""]
    switches = list(network.switches)
    order.shuffle(switches)
    for guid in switches:
        order.shuffle(ports[guid])
        lines += ["vendid=0x2c9", "devid=0xd2f2", f"sysimgguid=0x{guid}", f"switchguid=0x{guid}({guid})"]
        lines.append(f'Switch\t65 "S-{guid}"\t\t# "{network.switches[guid]}" enhanced port 0 lid 9 lmc 0')
        lines += [f"[{number}]\t{port}" for number, port in enumerate(ports[guid], 1)]
        lines.append("")
    for guid, switch in network.plugged:
        lines += ["vendid=0x2c9", "devid=0x1021", f"sysimgguid=0x{guid}", f"caguid=0x{guid}"]
        lines.append(f'Ca\t1 "H-{guid}"\t\t# "{network.descriptions[guid]}"')
        lines.append(f'[1]({guid}) \t"S-{switch}"[1]\t\t# lid 7 lmc 0 "{network.switches[switch]}" lid 9 {SPEED}')
        lines.append("")
    return "\n".join(lines).encode() + b"\n"


def irregular(hosts: str = "d", switches: int = 1_100) -> bytes:
    """A survey of switches that share one host, each with another host of its own."""
    return "\n".join(
        f'switchguid=0x{0xA000 + number:x}(1)\nSwitch\t64 "S-{0xA000 + number:016x}"\t# "x"\n'
        f'[1]\t"H-{0xB000:016x}"[1]({0xC000 + number:x})\t\t# "evil mlx5_0" lid 1 4xNDR\n'
        f'[2]\t"H-{int(hosts, 16) << 16 | number:016x}"[1]({0xE0000 + number:x})\t\t# "h{number} mlx5_0" lid 1 4xNDR\n'
        for number in range(switches)
    ).encode()
