"""Hosts and switches with the number of cables between them: what the rule of leaf groups reads. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import NamedTuple

from gkm.api.grammar import agree, count_of
from gkm.topology.hypernodes import HyperNode
from gkm.topology.quarantine import Quarantined

_EXAMPLES, _LONGEST_EXAMPLE = 3, 63
Cables = Mapping[str, Mapping[str, int]]
"""Number of cables, by one end and the other."""

OTHER_HOST = "?"
"""Precedes the name of a host outside of the cluster: no node has a name with it."""


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
    settings: str = "interfaces or switches"
    """The keys of the provider's config that decide which cables count."""


class MatchedHosts(NamedTuple):
    """How many hosts of a source are nodes, how many are not, and how many adapters in it name no host.

    `examples` are a few of the `others`, by the names that the source gives them: content of the source.
    """

    nodes: int = 0
    others: int = 0
    unnamed: int = 0
    examples: tuple[str, ...] = ()

    @classmethod
    def of(cls, hosts: Iterable[str], nodes: Collection[str], unnamed: int = 0) -> "MatchedHosts":
        """Return the counts of hosts by their names."""
        listed = [*hosts]
        others = [host for host in listed if host not in nodes]
        examples = tuple(host.removeprefix(OTHER_HOST)[:_LONGEST_EXAMPLE] for host in nsmallest(_EXAMPLES, others))
        return cls(len(listed) - len(others), len(others), unnamed, examples)

    def unmatched(self, *, with_examples: bool) -> str:
        """Return a sentence about what is no node, "" if all is one."""
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
    """What a source yields: HyperNodes with the closest first, nodes without a HyperNode with the reason, and faults.

    `faults` are sentences for a person, without content of the source. `hosts` tell an empty source from a source that
    shows other hosts.
    """

    hypernodes: tuple[HyperNode, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()
    faults: tuple[str, ...] = ()
    hosts: MatchedHosts | None = None
