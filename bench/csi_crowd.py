"""Calls while many volumes are on the node: shows costs that depend on their number.

Figures that begin with at_500 are of pairs beside 500 that stay, those with to_500 of the 500 themselves on their way.
The names have the number of the full size.
"""

from dataclasses import dataclass

from csi_calls import Times
from csi_node import Node


@dataclass(frozen=True)
class Crowd:
    """How many volumes stay, and how many pairs of calls are beside them."""

    volumes: int
    pairs: int


def of_one_cache(node: Node, size: Crowd) -> dict[str, float]:
    """Every volume shows the same cache, so one usage file lists all of them."""
    return _measured(node, "one_cache", ["llama"] * size.volumes, size.pairs)


def of_many_caches(node: Node, size: Crowd) -> dict[str, float]:
    """Every volume shows a cache of its own."""
    names = [f"cache-{number}" for number in range(size.volumes)]
    for name in names:
        node.files.ready(name)
    return _measured(node, "caches", names, size.pairs)


def _measured(node: Node, what: str, caches: list[str], pairs: int) -> dict[str, float]:
    standing = [node.standing({"cacheName": name}) for name in caches]
    filling = Times(publish=[node.ours.caller.published(volume) for volume in standing])
    beside = node.ours.caller.pairs(node.volumes(pairs, {"cacheName": caches[0]}))
    rss = node.ours.rss_mib()
    filling.unpublish.extend(node.ours.caller.unpublished(volume) for volume in standing)
    return {
        **beside.figures(f"at_500_{what}_"),
        **filling.figures(f"to_500_{what}_"),
        f"at_500_{what}_rss_mib": rss,
    }
