"""The pictures of a status: the GPUs of a cluster at their places, with what pods and plans hold; and its caches. Pure.

Texts come from labels and names: `gkm_cli.boxes` escapes them.
"""

from collections.abc import Iterable, Mapping

from gkm.topology.eligibility import unusable
from gkm.topology.survey import LocatedNode, TopologySurvey
from gkm.topology.usage import Usage

from gkm_cli import boxes
from gkm_cli.boxes import Size
from gkm_cli.cells import BAR, BAR_WIDTH, Cell, Drawing, Style, nested
from gkm_cli.plan.pictures import gpu_drawing
from gkm_cli.status.parts import Caches, CacheState

GPUS = (
    Style("p", "#2e7d32", "held by plans"),
    Style("u", "#90a4ae", "used by pods"),
    Style("f", "#a9d5b2", "free"),
    Style("x", "#ef9a9a", "not usable"),
    Style("n", "#b39ddb", "not known"),
)
CACHES = (
    Style("cr", "#2e7d32", "ready"),
    Style("cp", "#00acc1", "pulling"),
    Style("cw", "#fbc02d", "waiting"),
    Style("cf", "#c62828", "failed"),
    Style("ci", "#90a4ae", "does not fit"),
    Style("cn", "#ffffff", "on no node"),
)
MAX_CACHES = 4_000
"""Cells; those with a fault come first."""


def topology(survey: TopologySurvey, usage: Usage, held: Mapping[str, int]) -> Drawing:
    """Return the nodes of a cluster at their places: GPUs that pods use, that plans hold besides, and the others."""
    cells = [_node(located, usage, held) for located in survey.located if located.gpus]
    ordered = sorted(cells, key=lambda cell: (cell.place, cell.name))
    return gpu_drawing("Topology and plans", ordered, GPUS, len(survey.quarantined), marked=1)


def _node(located: LocatedNode, usage: Usage, held: Mapping[str, int]) -> Cell:
    """Return a node. GPUs that are free are not usable if no new pod can use the node.

    A pod with an invalid request leaves unknown what is free.
    """
    name, gpus = located.node.name, located.gpus
    if name in usage.faults:
        return Cell(located.location, name, (0, 0, 0, 0, gpus))
    used = min(gpus, usage.gpus.get(name, 0))
    planned = min(gpus - used, held.get(name, 0))
    rest = gpus - used - planned
    free = rest if unusable(located.node, located.health) is None else 0
    return Cell(located.location, name, (planned, used, free, rest - free, 0))


def caches(found: Caches) -> Drawing:
    """Return the caches as bars by kind and namespace, each with the shares of its nodes."""
    shown = found.caches[:MAX_CACHES]
    cells = sorted(map(_cache, shown), key=lambda cell: (cell.place, cell.name))
    total = [sum(column) for column in zip([0] * len(CACHES), *(cell.parts for cell in cells), strict=True)]
    inner = nested(cells, ("", "namespace"), Size(BAR_WIDTH, BAR, 4))
    box = boxes.filled(f"Caches: {len(found.caches)}", (), Size(BAR_WIDTH, BAR), inner)
    notes = tuple(_notes(len(found.caches) - len(shown)))
    return Drawing(box, "cache", CACHES, total, len(cells), notes=notes)


def _cache(cache: CacheState) -> Cell:
    nodes = (cache.ready_nodes, cache.pulling_nodes, cache.waiting_nodes, cache.failed_nodes, cache.incompatible_nodes)
    place = (cache.kind, cache.namespace or "(cluster)")
    return Cell(place, f"{cache.name} ({cache.state})", (*nodes, int(not any(nodes))))


def _notes(omitted: int) -> Iterable[str]:
    yield "a bar is a cache, its parts are the nodes that report it"
    if omitted:
        yield f"not drawn: {omitted} more caches"
