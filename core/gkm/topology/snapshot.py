"""The tree and the GPUs of all nodes as frozen snapshots; a change of one makes another that shares the rest. Pure.

A change of nodes costs a comparison of all of them with those before, and a new tree if claims changed. Sums over
domains and the index are made when they are asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256, shake_256
from typing import NamedTuple

from gkm.api.topology_settings import Topology
from gkm.topology.claims import Row, Rows
from gkm.topology.merge import Merge, Named, differing
from gkm.topology.nodes import Node
from gkm.topology.quarantine import Quarantined
from gkm.topology.states import NodeState, Sums, node_state
from gkm.topology.tree import Tree

# AdHash of Bellare and Micciancio: sums of digests so long that even Wagner's attack on sums takes 2**127 steps.
_DIGEST_BYTES = 512


class IndexKey(NamedTuple):
    """What nodes are looked up by. `domain` is an identity of the closest level, or an own one."""

    region: str
    cluster: str
    domain: str
    flavor: str


@dataclass(frozen=True)
class Snapshot:
    """The tree of all nodes that take part, and what each of them has. Equal states have equal versions.

    `used` are GPUs in use by node, 0 for an absent one, None where that is unknown. Quarantined nodes have a state, and
    are in no domain. Use `start` and `changed` to make one.
    """

    merge: Merge
    nodes: Mapping[str, Node] = field(default_factory=dict)
    used: Mapping[str, int | None] = field(default_factory=dict)
    states: Mapping[str, NodeState] = field(default_factory=dict)
    checksum: int = 0

    @staticmethod
    def start(settings: Topology) -> "Snapshot":
        """Return the snapshot of no nodes."""
        return Snapshot(Merge(settings, Rows(settings)))

    def changed(
        self, nodes: Mapping[str, Node], by_provider: Named, used: Mapping[str, int | None] | None = None
    ) -> "Snapshot":
        """Return the snapshot of these nodes with the placements of the same providers; itself if all is the same."""
        used = used or {}

        def role(name: str) -> bool | None:
            return nodes[name].gpus is not None if name in nodes else None

        merge, names = self.merge.changed(by_provider, differing(self.nodes, nodes) | differing(self.used, used), role)
        if not names:
            return self
        states, checksum = dict(self.states), self.checksum
        for name in names:
            if (state := states.pop(name, None)) is not None:
                checksum -= _digest(state, self.merge)
            if name in merge.rows or name in merge.faults:
                states[name] = state = node_state(nodes[name], used.get(name, 0), merge.settings)
                checksum += _digest(state, merge)
        return Snapshot(merge, nodes, used, states, checksum)

    @property
    def tree(self) -> Tree:
        """Return the tree; the same object as long as nothing that it shows changes."""
        return self.merge.tree

    @cached_property
    def version(self) -> str:
        """Return a digest of the claims about all nodes and of their states, in hexadecimal."""
        modulo = self.checksum % (1 << 8 * _DIGEST_BYTES)
        return sha256(modulo.to_bytes(_DIGEST_BYTES)).hexdigest()

    @cached_property
    def sums(self) -> Sums:
        """Return the totals of the nodes of any domain of the tree."""
        return Sums(self.states[name] for name in self.tree.nodes)

    @cached_property
    def index(self) -> Mapping[IndexKey, tuple[str, ...]]:
        """Return the nodes by region, cluster, domain and flavor."""
        tree, defaults = self.tree, self.merge.settings.defaults
        shown: dict[str, list[str]] = {"region": [], "cluster": []}
        for level, domains in zip(tree.levels, tree.domains, strict=True):
            default = {"region": defaults.region, "cluster": defaults.cluster}.get(level, "")
            shown[level] = [
                (default if domain.own and default else domain.identity)
                for domain in domains
                for _ in range(domain.first, domain.end)
            ]
        found: dict[IndexKey, list[str]] = {}
        for position, name in enumerate(tree.nodes):
            region = shown["region"][position] if shown["region"] else defaults.region
            cluster = shown["cluster"][position] if shown["cluster"] else defaults.cluster
            key = IndexKey(region, cluster, shown[tree.levels[0]][position], self.states[name].flavor)
            found.setdefault(key, []).append(name)
        return {key: tuple(sorted(names)) for key, names in found.items()}


def _digest(state: NodeState, merge: Merge) -> int:
    found: Row | Quarantined = merge.faults.get(state.name) or merge.rows[state.name]
    where = found.why if isinstance(found, Quarantined) else found
    text = repr((state.name, state.flavor, state.gpus, state.used, state.problem, where))
    return int.from_bytes(shake_256(text.encode(errors="surrogatepass")).digest(_DIGEST_BYTES))
