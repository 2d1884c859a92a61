"""What every GPU of a cluster is to a plan, by node, and as boxes of a bounded number of cells for a picture. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from gkm.api.grammar import count_of
from gkm.packing.inventory import Inventory
from gkm.packing.values import Group, Location
from gkm.topology.survey import TopologySurvey

from gkm_cli import boxes
from gkm_cli.boxes import Box, Size

MAX_GPUS = 20_000
"""Of a larger cluster a cell is a domain, not a GPU."""
MAX_NODE_GPUS = 16
MAX_CELLS = 16_000
"""Of a cluster with more domains a cell is a block, a cluster or a region; what is beyond is not drawn."""
MAX_TITLED = 1_000
"""Boxes with a title of their own. With MAX_CELLS it bounds the size of a picture, whatever names a cluster has."""
_LONGEST_NAME = 40
GPU = 5
"""The width and height of a GPU, with 1 between two of a node."""
BAR, BAR_WIDTH = 6, 36
"""The height and width of the bar of a place."""
_LEVELS = Location._fields


class Parts(NamedTuple):
    """GPUs. `stranded` ones stay free in domains of the run, `free` ones elsewhere; it cannot use `excluded` ones."""

    run: int = 0
    spares: int = 0
    others: int = 0
    stranded: int = 0
    free: int = 0
    excluded: int = 0

    @property
    def total(self) -> int:
        """Return the sum."""
        return sum(self)


class Cell(NamedTuple):
    """A node or a place with its GPUs."""

    place: Location
    name: str
    parts: Parts


@dataclass(frozen=True, slots=True)
class Drawing:
    """The boxes of a picture. `cell` is what a cell is: node (each of its GPUs is drawn), domain, block, and so on."""

    box: Box[Cell]
    cell: str
    total: Parts
    cells: int
    omitted: int
    quarantined: int


def drawing(title: str, survey: TopologySurvey, inventory: Inventory, groups: Iterable[Group]) -> Drawing:
    """Return the boxes for a plan on the nodes of a survey, of which `inventory` has those that the run may use."""
    nodes = _nodes(survey, inventory, list(groups))
    total = _sum(nodes)
    by_level = {"node": nodes}
    for depth in range(len(_LEVELS), 0, -1):
        by_level[_LEVELS[depth - 1]] = _merged(next(reversed(by_level.values())), depth)
    cell = _level(by_level, total)
    cells = by_level[cell][:MAX_CELLS]
    # A node stands in the box of its domain, any other place in that of the next wider level.
    depth = len(_LEVELS) if cell == "node" else _LEVELS.index(cell)
    if cell == "node":
        widest = max((each.parts.total for each in cells), default=1)
        size = Size(widest * (GPU + 1) - 1, GPU, 4)
    else:
        size = Size(BAR_WIDTH, BAR, 4)
    widths = [len({each.place[: level + 1] for each in cells}) for level in range(depth)]
    titled = [count <= MAX_TITLED for count in widths]
    inner = _boxes(cells, 0, depth, titled, size)
    items: Sequence[Cell] = cells if not depth else ()
    box = boxes.filled(f"{title}: {count_of(total.total, 'GPU')} in the cluster", items, size, inner)
    return Drawing(box, cell, total, len(cells), len(by_level[cell]) - len(cells), len(survey.quarantined))


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


def _merged(cells: Iterable[Cell], depth: int) -> list[Cell]:
    """Return the places of a level, which `depth` names down to it identify."""
    found = []
    for _, same in groupby(cells, key=lambda cell: cell.place[:depth]):
        members = list(same)
        place = members[0].place
        found.append(Cell(place, "/".join(place[:depth]), _sum(members)))
    return found


def _sum(cells: Iterable[Cell]) -> Parts:
    columns = zip(*(cell.parts for cell in cells), strict=True)
    return Parts(*map(sum, columns))


def _level(by_level: dict[str, list[Cell]], total: Parts) -> str:
    nodes = by_level["node"]
    widest = max((cell.parts.total for cell in nodes), default=0)
    if total.total <= MAX_GPUS and widest <= MAX_NODE_GPUS:
        return "node"
    return next((level for level in reversed(_LEVELS) if len(by_level[level]) <= MAX_CELLS), _LEVELS[0])


def _boxes(cells: Sequence[Cell], level: int, depth: int, titled: Sequence[bool], size: Size) -> list[Box[Cell]]:
    """Return the boxes of a level for cells, which are sorted by place."""
    if level == depth:
        return []
    found = []
    for _, same in groupby(cells, key=lambda cell: cell.place[: level + 1]):
        members = list(same)
        inner = _boxes(members, level + 1, depth, titled, size)
        title = _title(members, level) if titled[level] else ""
        found.append(boxes.filled(title, members if level + 1 == depth else [], size, inner))
    return found


def _title(members: Sequence[Cell], level: int) -> str:
    name = boxes.cut(members[0].place[level], _LONGEST_NAME)
    # A domain is narrow: its name says what it is.
    return name if level + 1 == len(_LEVELS) else f"{_LEVELS[level]} {name}"
