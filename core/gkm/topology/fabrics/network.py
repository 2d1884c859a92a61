"""The number of cables between hosts and switches, the input for grouping leaf switches. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import NamedTuple

from gkm.api.grammar import agree, count_of
from gkm.topology.hypernodes import HyperNode
from gkm.topology.quarantine import Quarantined

_EXAMPLES, _LONGEST_EXAMPLE = 3, 63
Cables = Mapping[str, Mapping[str, int]]
"""The number of cables by their two ends."""

OTHER_HOST = "?"
"""Prefix of the names of hosts outside of the cluster; no node has such a name."""


@dataclass(frozen=True, slots=True)
class FabricNetwork:
    """The cables between hosts and switches, and between switches in both directions.

    `hosts` are nodes by their names, and hosts outside of the cluster by names that no node can have. `anonymous` are
    the numbers of adapters of further, unidentified hosts by switch.
    """

    hosts: Cables
    links: Cables = field(default_factory=dict)
    anonymous: Mapping[str, int] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    settings: str = "interfaces or switches"
    """The keys of the provider's `config` that decide which cables are used."""


class MatchedHosts(NamedTuple):
    """How many hosts in a source are nodes of the cluster, how many are not, and how many adapters name no host.

    `examples` are a few of the `others`, by the names that the source gives them: content of the source.
    """

    nodes: int = 0
    others: int = 0
    unnamed: int = 0
    examples: tuple[str, ...] = ()

    @classmethod
    def of(cls, hosts: Iterable[str], nodes: Collection[str], unnamed: int = 0) -> "MatchedHosts":
        """Count the hosts of a source by their names."""
        listed = [*hosts]
        others = [host for host in listed if host not in nodes]
        examples = tuple(host.removeprefix(OTHER_HOST)[:_LONGEST_EXAMPLE] for host in nsmallest(_EXAMPLES, others))
        return cls(len(listed) - len(others), len(others), unnamed, examples)

    def unmatched(self, *, with_examples: bool) -> str:
        """Return a sentence about hosts that are no nodes and adapters that name no host; "" if there are none."""
        examples = f", for example {', '.join(self.examples)}" if with_examples and self.examples else ""
        others = f"{count_of(self.others, 'host')} in it {agree(self.others, 'is no node', 'are no nodes')}{examples}"
        unnamed = f"{count_of(self.unnamed, 'adapter')} in it {agree(self.unnamed, 'names', 'name')} no host"
        return "; ".join([*([others] if self.others else []), *([unnamed] if self.unnamed else [])])

    def nothing_placed(self, nodes: int, *, with_examples: bool = False) -> str:
        """Return why a source places none of its nodes; "" if it places some, or has no nodes."""
        if self.nodes or not nodes:
            return ""
        why = self.unmatched(with_examples=with_examples) or "it shows no host"
        return f"it places 0 of {count_of(nodes, 'node')}: {why}"


@dataclass(frozen=True, slots=True)
class FabricDiscovery:
    """The result of reading a network source: HyperNodes, the closest first; nodes without a place; and faults.

    `faults` are sentences for a person, without content of the source. `hosts` tell an empty source from a source that
    shows other hosts.
    """

    hypernodes: tuple[HyperNode, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()
    faults: tuple[str, ...] = ()
    hosts: MatchedHosts | None = None
