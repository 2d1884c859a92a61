"""Valid trees of HyperNodes, written down or drawn."""

from collections.abc import Mapping, Sequence

from gkm.topology.hypernodes import HyperNode, Member
from hypothesis import strategies as st

Trees = dict[str, HyperNode]
NODES = [f"n{position}" for position in range(8)]
TIERS = {"d": 1, "r": 2, "b": 3, "c": 4}


def tree(placed: Mapping[str, Sequence[str]], tiers: Mapping[str, int]) -> Trees:
    """Return the HyperNodes of nodes with their domains, the closest first; a domain's level is its first letter."""
    members: dict[str, set[Member]] = {}
    for node, domains in placed.items():
        inner = Member("Node", node)
        for domain in domains:
            members.setdefault(domain, set()).add(inner)
            inner = Member("HyperNode", domain)
    return {name: HyperNode(name, name[0], tuple(sorted(inside)), tiers[name[0]]) for name, inside in members.items()}


def placements(tiers: Mapping[str, int]) -> st.SearchStrategy[dict[str, list[str]]]:
    """Nodes with domains that nest: each domain has one parent."""
    levels = sorted(tiers, key=lambda level: tiers[level])

    @st.composite
    def drawn(draw: st.DrawFn) -> dict[str, list[str]]:
        parents: dict[str, list[str]] = {}

        def above(position: int, name: str) -> list[str]:
            if name not in parents:
                rest: list[str] = []
                for higher in range(position + 1, len(levels)):
                    number = draw(st.integers(0, 3))
                    if number:
                        outer = f"{levels[higher]}{number}"
                        rest = [outer, *above(higher, outer)]
                        break
                parents[name] = rest
            return parents[name]

        found: dict[str, list[str]] = {}
        for node in draw(st.lists(st.sampled_from(NODES), unique=True)):
            position = draw(st.integers(0, len(levels)))
            if position < len(levels):
                name = f"{levels[position]}{draw(st.integers(1, 3))}"
                found[node] = [name, *above(position, name)]
        return found

    return drawn()


LEVELS = st.lists(st.sampled_from("drbc"), min_size=1, unique=True).map(
    lambda levels: {level: tier for tier, level in enumerate(levels, start=1)}
)
VALID = LEVELS.flatmap(lambda tiers: placements(tiers).map(lambda placed: tree(placed, tiers)))
