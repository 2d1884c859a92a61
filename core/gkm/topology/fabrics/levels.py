"""Find the levels of switches: the switches with hosts, then those above them, level by level. Pure."""

from collections import Counter
from collections.abc import Mapping

from gkm.topology.fabrics.network import FabricNetwork

MAX_LEVELS = 14
"""Limit of levels, as in `topology.levels`; switches above are ignored."""
_NAMES = ("leaf", "spine", "core")


def tier_name(level: int) -> str:
    """Return the name of a level of switches: leaf for 0, then spine, core and so on."""
    return _NAMES[level] if level < len(_NAMES) else f"tier-{level + 1}"


def switch_levels(network: FabricNetwork) -> list[frozenset[str]]:
    """Return the switches of each level, the leaves first.

    A switch with hosts is a candidate for a leaf, also if all of them are foreign: or the leaf of another cluster would
    look like a spine. A switch next to a level is a candidate for the level above. A candidate that is next to more
    other candidates than it has hosts and lower switches waits for a higher level: a spine with the host of a fabric
    manager is no leaf, and a core switch with one cable to a leaf is no spine.
    """
    hosts = _hosts_of_switches(network)
    levels: list[frozenset[str]] = []
    placed: set[str] = set()
    candidates = set(hosts)
    while candidates and len(levels) < MAX_LEVELS:
        level = frozenset(
            switch
            for switch in candidates
            for others in [network.links.get(switch, {}).keys()]
            if hosts.get(switch, 0) + len(others & placed) >= len(others & candidates)
        )
        # Switches that all lead to one another more than to hosts have no order: they are of one level.
        level = level or frozenset(candidates)
        levels.append(level)
        placed |= level
        above = {other for switch in level for other in network.links.get(switch, {})}
        candidates = (candidates | above) - placed
    return levels


def _hosts_of_switches(network: FabricNetwork) -> Mapping[str, int]:
    hosts = Counter(network.anonymous)
    for cables in network.hosts.values():
        hosts.update(cables.keys())
    return hosts
