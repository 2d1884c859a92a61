"""The guard against mass changes: a change that removes many nodes from their domains must be confirmed. Pure.

An empty answer, or a list that is half empty, looks like a cluster that lost its network. A forged survey looks like a
cluster with new cables. Such a result is applied only after several rounds. Losses in small steps add up: nodes that
lost their places are included for WINDOW_SECONDS, or until they have them again.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

from gkm.api.topology_settings import LEVEL_LABELS, TopologyGuard
from gkm.topology.hypernodes import HyperNode
from gkm.topology.placements import placements
from gkm.topology.trees.names import OWN_LABEL_VALUE
from gkm.topology.trees.tree import Tree

WINDOW_SECONDS = 86_400.0
GROWTH_PERCENT = 10
"""How many percent of affected nodes may be added between rounds for a change to be the same."""

Places = Mapping[str, Mapping[str, str]]
"""The domain of each placed node, by level."""


@dataclass(frozen=True, slots=True)
class Losses:
    """The number of placed nodes, and the names of the nodes that a change would remove from their domains."""

    placed: int = 0
    nodes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class GuardState:
    """The guard's memory. `before` are the places to compare a change with, one for each part of the API server.

    `since` has the time of loss for each node that lost a place within the window. `suspected` nodes would lose a place
    in the first of `rounds` rounds; the last round was at `counted_at`. `losses` are the losses of the last change.
    Times are in seconds.
    """

    before: tuple[Places, ...] = ()
    since: Mapping[str, float] = field(default_factory=dict)
    losses: Losses = field(default_factory=Losses)
    suspected: frozenset[str] = frozenset()
    rounds: int = 0
    counted_at: float = 0.0

    @property
    def tripped(self) -> bool:
        """Return whether a change of the tree waits for confirmation."""
        return self.rounds > 0

    def seeing(self, shown: Places) -> "GuardState":
        """Return the state that also compares with places from another part of the API server, such as node labels."""
        return replace(self, before=(*self.before, shown))


class _Change:
    """The domains of nodes at one level before and after a change.

    The heir of a domain is the domain with most of its nodes, unless the heir has more nodes of another domain. A
    renamed domain is the same domain.
    """

    def __init__(self, level: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        self.level = level
        self.before = before
        self._after = after
        self._heirs: dict[str, str] = {}
        pairs = Counter((name, after.get(node, "")) for node, name in before.items())
        taken = {""}
        for (old, new), _ in sorted(pairs.items(), key=lambda item: (-item[1], item[0][0] != item[0][1], item[0])):
            if old not in self._heirs and new not in taken:
                self._heirs[old] = new
                taken.add(new)

    def strays(self) -> Iterable[str]:
        """Yield the nodes that are not in the heir of their domain."""
        return (node for node, old in self.before.items() if self._after.get(node) != self._heirs.get(old, ""))

    def present(self, node: str) -> str:
        """Return the present name of the domain that a node had."""
        return self._heirs.get(self.before[node], self.before[node])


def judge(state: GuardState, after: Places, nodes: Container[str], settings: TopologyGuard, now: float) -> GuardState:
    """Return the next state at `now` (seconds); the places `after` may be written unless the guard is tripped.

    Only `nodes`, those that exist, can lose anything. A node that flaps meanwhile does not start the count of rounds
    anew; a loss that goes on does.
    """
    changes = [
        _Change(level, {node: name for node, name in domains.items() if node in nodes}, after.get(level, {}))
        for places in state.before
        for level, domains in places.items()
    ]
    recent = {node for node, time in state.since.items() if now < time + WINDOW_SECONDS}
    strays = [[node for node in change.strays() if node in recent or node not in state.since] for change in changes]
    lost = frozenset().union(*strays)
    placed = len(set().union(*(change.before for change in changes)))
    found = Losses(placed, lost)
    if not _many(len(lost), placed, settings.percent, settings.minimum):
        # Lost places stay in the base of the next comparison, by the present names.
        held = {level: dict(domains) for level, domains in after.items()}
        for change, nodes_of in zip(changes, strays, strict=True):
            held.setdefault(change.level, {}).update((node, change.present(node)) for node in nodes_of)
        return GuardState((held,), {node: state.since.get(node, now) for node in lost}, found)
    is_same = state.tripped and not _many(
        len(lost - state.suspected), len(state.suspected), GROWTH_PERCENT, settings.minimum
    )
    if is_same and now < state.counted_at + settings.interval_seconds:
        return replace(state, losses=found)
    rounds = state.rounds + 1 if is_same else 1
    if rounds >= settings.rounds:
        return GuardState((after,), losses=found)
    suspected = state.suspected if is_same else lost
    return replace(state, suspected=suspected, rounds=rounds, counted_at=now, losses=found)


def places_of_tree(tree: Tree) -> Places:
    """Return the place of each node in a tree, without nodes that are their own domain."""
    return {
        level: {
            node: domain.identity
            for domain in domains
            if not domain.own
            for node in tree.nodes[domain.first : domain.end]
        }
        for level, domains in zip(tree.levels, tree.domains, strict=True)
    }


def places_of_hypernodes(hypernodes: Iterable[HyperNode]) -> Places:
    """Return the place of each node in HyperNodes of the API server."""
    listed = list(hypernodes)
    levels = sorted({hypernode.tier_name for hypernode in listed})
    places = placements(listed, levels).places.items()
    return {level: {node: place[at] for node, place in places if place[at]} for at, level in enumerate(levels)}


def places_of_labels(nodes: Iterable[tuple[str, Mapping[str, str]]]) -> Places:
    """Return the place of each node in the labels that GKM writes, without nodes that are their own domain."""
    places: dict[str, dict[str, str]] = {}
    for node, labels in nodes:
        for key, value in labels.items():
            if key.startswith(LEVEL_LABELS) and not OWN_LABEL_VALUE.fullmatch(value):
                places.setdefault(key.removeprefix(LEVEL_LABELS), {})[node] = value
    return places


def _many(count: int, of: int, percent: int, minimum: int) -> bool:
    return count >= minimum and count * 100 > of * percent
