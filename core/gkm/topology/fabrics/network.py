"""Hosts and switches with the number of cables between them: what the rule of leaf groups reads. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gkm.topology.hypernodes import HyperNode
from gkm.topology.quarantine import Quarantined

Cables = Mapping[str, Mapping[str, int]]
"""Number of cables, by one end and the other."""


@dataclass(frozen=True, slots=True)
class FabricNetwork:
    """The cables of hosts, by host and switch, and between switches, in both directions.

    `hosts` are nodes by their names, and hosts outside of the cluster by names that no node can have. `anonymous` are
    the numbers of adapters of further, unidentified hosts by switch.
    """

    hosts: Cables
    links: Cables = field(default_factory=dict)
    anonymous: Mapping[str, int] = field(default_factory=dict)
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FabricDiscovery:
    """What a source yields: HyperNodes with the closest first, nodes in none of them with the reason, and faults.

    `faults` are sentences for a person, without content of the source.
    """

    hypernodes: tuple[HyperNode, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()
    faults: tuple[str, ...] = ()
