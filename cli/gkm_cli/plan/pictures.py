"""A plan as a picture in SVG: where the run lies in the cluster, and beside whom. Pure.

A node is a row of squares, one for each GPU. In a large cluster a domain is one bar, with a frame if the run is there.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from gkm.api.grammar import count_of
from gkm.packing.inventory import Inventory
from gkm.packing.values import Group, Location
from gkm.topology.survey import TopologySurvey

from gkm_cli import boxes
from gkm_cli.boxes import Size
from gkm_cli.cells import BAR, BAR_WIDTH, SQUARE, Cell, Drawing, Style, nested

MAX_GPUS = 20_000
"""In a larger cluster a cell is a domain, not a GPU."""
MAX_NODE_GPUS = 16
MAX_CELLS = 16_000
"""In a cluster with more domains a cell is a block, a cluster or a region; further cells are not drawn."""
_LEVELS = Location._fields
_WORDS = (*_LEVELS[:-1], "")
"""A domain is narrow: its name says what it is."""
STYLES = (
    Style("r", "#2e7d32", "this plan"),
    Style("s", "#00acc1", "its spares"),
    Style("o", "#90a4ae", "used by others"),
    Style("t", "#fbc02d", "stranded"),
    Style("f", "#a9d5b2", "free"),
    Style("x", "#ef9a9a", "not for this run"),
)
"""In the order of Parts."""
_OF_RUN = 2


class Parts(NamedTuple):
    """The numbers of GPUs of a node or place by use, for the picture of a plan."""

    run: int = 0
    spares: int = 0
    others: int = 0
    stranded: int = 0
    free: int = 0
    excluded: int = 0


def drawing(title: str, survey: TopologySurvey, inventory: Inventory, groups: Iterable[Group]) -> Drawing:
    """Return the picture of a plan on the nodes of a survey; `inventory` has the nodes that the run may use."""
    return gpu_drawing(title, _nodes(survey, inventory, list(groups)), STYLES, len(survey.quarantined), _OF_RUN)


def gpu_drawing(title: str, nodes: Sequence[Cell], styles: Sequence[Style], quarantined: int, marked: int) -> Drawing:
    """Return the picture of nodes, whose parts are GPUs in the order of `styles`, and whose places are Locations.

    Where a cell is a place, those with one of the first `marked` parts have a frame.
    """
    total, levels = _sum(nodes, styles), _by_level(nodes, styles)
    kind = _level(levels, sum(total))
    cells, squares = levels[kind][:MAX_CELLS], kind == "node"
    # A node stands in the box of its domain, any other place in that of the next wider level.
    depth = len(_LEVELS) if squares else _LEVELS.index(kind)
    widest = max((sum(each.parts) for each in cells), default=1)
    size = Size(widest * (SQUARE + 1) - 1, SQUARE, 4) if squares else Size(BAR_WIDTH, BAR, 4)
    inner = nested(cells, _WORDS[:depth], size)
    title = f"{title}: {count_of(sum(total), 'GPU')} in the cluster"
    box = boxes.filled(title, cells if not depth else (), size, inner)
    notes = tuple(_notes(kind, len(levels[kind]) - len(cells), quarantined))
    return Drawing(box, kind, styles, total, len(cells), squares=squares, marked=marked, notes=notes)


def _notes(kind: str, omitted: int, quarantined: int) -> Iterable[str]:
    yield "a square is a GPU, a row of them a node" if kind == "node" else f"a bar is a {kind}"
    if omitted:
        yield f"not drawn: {omitted} more places"
    if quarantined:
        yield f"not drawn: {count_of(quarantined, 'quarantined node')}, whose place or GPUs are unknown"


def _nodes(survey: TopologySurvey, inventory: Inventory, groups: Sequence[Group]) -> list[Cell]:
    run: Counter[str] = Counter()
    spares: Counter[str] = Counter()
    for group in groups:
        run.update(dict(group.nodes))
        for spare in group.spares:
            spares[spare.node] += spare.gpus
    used_domains = {group.place for group in groups}
    found = []
    for located in survey.located:
        name, gpus = located.node.name, located.gpus
        if not gpus:
            continue
        number = inventory.numbers.get(name)
        if number is None:
            found.append(Cell(located.location, name, Parts(excluded=gpus)))
            continue
        node = inventory.nodes[number]
        rest = node.free - run[name] - spares[name]
        stranded = rest if node.place in used_domains else 0
        parts = Parts(run[name], spares[name], node.total - node.free, stranded, rest - stranded)
        found.append(Cell(node.place, name, parts))
    return sorted(found, key=lambda cell: (cell.place, cell.name))


def _by_level(nodes: Sequence[Cell], styles: Sequence[Style]) -> Mapping[str, Sequence[Cell]]:
    """Return the cells of each level, from nodes to regions."""
    found = {"node": nodes}
    for depth in range(len(_LEVELS), 0, -1):
        found[_LEVELS[depth - 1]] = _merged(next(reversed(found.values())), depth, styles)
    return found


def _merged(cells: Iterable[Cell], depth: int, styles: Sequence[Style]) -> list[Cell]:
    """Return the places of a level, which `depth` names down to it identify."""
    found = []
    for _, same in groupby(cells, key=lambda cell: cell.place[:depth]):
        members = list(same)
        place = members[0].place
        found.append(Cell(place, "/".join(place[:depth]), _sum(members, styles)))
    return found


def _sum(cells: Iterable[Cell], styles: Sequence[Style]) -> list[int]:
    return [sum(column) for column in zip([0] * len(styles), *(cell.parts for cell in cells), strict=True)]


def _level(by_level: Mapping[str, Sequence[Cell]], gpus: int) -> str:
    widest = max((sum(cell.parts) for cell in by_level["node"]), default=0)
    if gpus <= MAX_GPUS and widest <= MAX_NODE_GPUS:
        return "node"
    return next((level for level in reversed(_LEVELS) if len(by_level[level]) <= MAX_CELLS), _LEVELS[0])
