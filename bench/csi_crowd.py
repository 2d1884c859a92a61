"""Calls while 500 volumes are on the node: shows costs that depend on their number.

Figures that begin with at_500 are of pairs beside 500 that stay, those with to_500 of the 500 themselves on their way.
"""

from csi_calls import Times
from csi_node import Node

VOLUMES = 500
PAIRS = 200


def of_one_cache(node: Node) -> dict[str, float]:
    """Every volume shows the same cache, so one usage file lists all of them."""
    return _measured(node, "one_cache", ["llama"] * VOLUMES)


def of_many_caches(node: Node) -> dict[str, float]:
    """Every volume shows a cache of its own."""
    names = [f"cache-{number}" for number in range(VOLUMES)]
    for name in names:
        node.files.ready(name)
    return _measured(node, "caches", names)


def _measured(node: Node, what: str, caches: list[str]) -> dict[str, float]:
    standing = [node.standing({"cacheName": name}) for name in caches]
    filling = Times(publish=[node.ours.caller.published(volume) for volume in standing])
    beside = node.ours.caller.pairs(node.volumes(PAIRS, {"cacheName": caches[0]}))
    rss = node.ours.rss_mib()
    filling.unpublish.extend(node.ours.caller.unpublished(volume) for volume in standing)
    return {
        **beside.figures(f"at_{VOLUMES}_{what}_"),
        **filling.figures(f"to_{VOLUMES}_{what}_"),
        f"at_{VOLUMES}_{what}_rss_mib": rss,
    }
