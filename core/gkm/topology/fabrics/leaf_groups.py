"""Group leaf switches that lead to the same nodes, for every kind of network (docs/reference/topology-tree.md). Pure.

At each level, `rails` joins switches into groups by what they connect, and a host (or a group of the level below) lies
in the group that most of its cables lead to. Equal numbers give no decision: such a node is quarantined, and such a
group has no parent. So it takes as many wrong cables as right ones to move a node.
"""

import re
from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from gkm.api.grammar import agree, count_of
from gkm.topology.fabrics.levels import switch_levels, tier_name
from gkm.topology.fabrics.network import Cables, FabricDiscovery, FabricNetwork, MatchedHosts
from gkm.topology.fabrics.rails import joined
from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.quarantine import Quarantined, QuarantineReason

_HASHED = "switch-"
_LABEL = re.compile(rf"(?!{_HASHED})[a-z0-9](?:[a-z0-9-]{{0,61}}[a-z0-9])?", re.ASCII)
_GROUP = "/"
"""Precedes the name of a group among what a group connects; no host has a name with it in front."""


@dataclass(frozen=True, slots=True)
class _Level:
    """The hosts and groups below in each group; for those without a group, the equal numbers of cables."""

    members: Mapping[str, Sequence[str]]
    tied: Mapping[str, int]


def discover(network: FabricNetwork, nodes: Collection[str], existing: Container[str] = ()) -> FabricDiscovery:
    """Return the groups of switches above `nodes` as HyperNodes, the closest first.

    A group is named by one of its switches: the first whose name is in `existing`, the names that this source had
    before, else the first of all. So a new switch renames no group.

    Raises:
        TooIrregular: the network has no groups that can be found in bounded time.
    """
    known = frozenset(nodes)
    levels = _levels(network, existing)
    quarantined = [
        Quarantined(node, QuarantineReason.EQUAL_CABLES, _message(cables, network.settings))
        for level in levels
        for node, cables in level.tied.items()
        if node in known
    ]
    faults = [
        f"{count_of(count, 'group')} below level {tier_name(number)} {agree(count, 'has', 'have')} no parent: equal "
        "numbers of cables lead to several"
        for number, level in enumerate(levels)
        if (count := sum(unit.startswith(_GROUP) for unit in level.tied))
    ]
    return FabricDiscovery(
        tuple(_hypernodes(levels, known)),
        tuple(sorted(quarantined)),
        (*network.faults, *faults),
        MatchedHosts.of(network.hosts, known, sum(network.anonymous.values())),
    )


def name_of(switch: str) -> str:
    """Return the name of the group that is named after this switch.

    Its identifier if that is a DNS label, else a hash.
    """
    return switch if _LABEL.fullmatch(switch) else f"{_HASHED}{sha256(switch.encode()).hexdigest()[:16]}"


def _message(cables: int, settings: str) -> str:
    equal = f"several groups of switches have {count_of(cables, 'cable')} to it each, and no group has more"
    setting = f"name the {settings} to use in the config of the provider (topology.providers)"
    return f"{equal}: {setting}, unless a cable is in a wrong switch"


def _levels(network: FabricNetwork, existing: Container[str]) -> list[_Level]:
    levels = []
    units: dict[str, Mapping[str, int]] = dict(network.hosts)
    for switches in switch_levels(network):
        connected: dict[str, set[str]] = {switch: set() for switch in switches}
        for unit, cables in units.items():
            for switch in cables.keys() & switches:
                connected[switch].add(unit)
        groups = {
            _name(group, existing): group
            for group in joined({switch: frozenset(below) for switch, below in connected.items()})
        }
        level, units = _assigned(units, groups)
        levels.append(level)
        units |= {_GROUP + name: _cables(group, network.links) for name, group in groups.items()}
    return levels


def _name(switches: Sequence[str], existing: Container[str]) -> str:
    names = {name_of(switch) for switch in switches}
    return min({name for name in names if name in existing} or names)


def _assigned(
    units: Mapping[str, Mapping[str, int]], groups: Mapping[str, Sequence[str]]
) -> tuple[_Level, dict[str, Mapping[str, int]]]:
    """Return the units in each group, and those without a cable to any of them: they may have one to a higher level."""
    group_of = {switch: name for name, switches in groups.items() for switch in switches}
    members: dict[str, list[str]] = {name: [] for name in groups}
    tied: dict[str, int] = {}
    rest: dict[str, Mapping[str, int]] = {}
    for unit, cables in units.items():
        numbers: Counter[str] = Counter()
        for switch, number in cables.items():
            if switch in group_of:
                numbers[group_of[switch]] += number
        most = max(numbers.values(), default=0)
        best = [name for name, number in numbers.items() if number == most]
        if not best:
            rest[unit] = cables
        elif len(best) > 1:
            tied[unit] = most
        else:
            members[best[0]].append(unit)
    return _Level(members, tied), rest


def _cables(switches: Sequence[str], links: Cables) -> Mapping[str, int]:
    cables: Counter[str] = Counter()
    for switch in switches:
        cables.update(links.get(switch, {}))
    return cables


def _hypernodes(levels: Sequence[_Level], nodes: frozenset[str]) -> Iterator[HyperNode]:
    """Yield the groups that hold nodes; highest levels whose groups all repeat one group below are left out."""
    found: list[list[HyperNode]] = []
    written: set[str] = set()
    for number, level in enumerate(levels):
        hypernodes = []
        for name, units in sorted(level.members.items()):
            below = [Member("HyperNode", unit[1:]) for unit in units if unit.startswith(_GROUP) and unit[1:] in written]
            members = (*(Member("Node", unit) for unit in units if unit in nodes), *below)
            if members:
                hypernodes.append(HyperNode(name, tier_name(number), tuple(sorted(members)), number + 1))
        written |= {hypernode.name for hypernode in hypernodes}
        found.append(hypernodes)
    while len(found) > 1 and all(len(hypernode.members) == 1 for hypernode in found[-1]):
        found.pop()
    for hypernodes in found:
        yield from hypernodes
