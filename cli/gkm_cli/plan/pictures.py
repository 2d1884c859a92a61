"""A plan as a page in HTML with an SVG picture: where the run lies in the cluster, and beside whom. Pure.

A node is a row of squares, one for each GPU. In a large cluster a domain is one bar, with a frame if the run is there.
The page needs nothing but itself; its policy (CSP) allows no script and no request, so that no text of a cluster can
become one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from textwrap import wrap
from typing import NamedTuple

from gkm.api.grammar import count_of
from gkm.packing.inventory import Inventory
from gkm.packing.values import Group, Location
from gkm.topology.survey import TopologySurvey
from rich.text import Text

from gkm_cli import boxes
from gkm_cli.boxes import Box, Size, cut, text

MAX_ROWS = 200
MAX_SIZE = 1_000_000
"""Characters of the text; it ends there."""
MAX_TEXT = 2_000
"""Characters of a cell or line: node lists of a group may be long. Programs read -o json."""
_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">"""
_STYLE = """<style>
body{font:14px/1.45 system-ui,sans-serif;margin:1.5rem;color:#1d2529;background:#fff}
h1{font-size:1.3rem}h2{font-size:1.05rem;margin:1.4rem 0 .4rem}
table{border-collapse:collapse}th,td{text-align:left;padding:.15rem .8rem .15rem 0;vertical-align:top}
th{border-bottom:1px solid #90a4ae;font-weight:600}tr:nth-child(even) td{background:#f5f7fa}
td{max-width:60rem;overflow-wrap:anywhere}code{white-space:pre;font:11px/1 monospace}
.wide{overflow:auto;margin:1rem 0}.picture{max-height:85vh;border:1px solid #cfd8dc}
svg{max-width:max(100%,1400px);height:auto}.bold{font-weight:600}.red{color:#b71c1c}.green{color:#2e7d32}
.yellow{color:#8d6e00}.cyan{color:#00838f}.bright_black{color:#78909c}
</style>"""
MAX_TOOLTIPS = 2_000
"""Cells with a name that appears under the mouse."""
MAX_CAPTION = 600
MAX_CAPTIONS = 40
_LINE, _MIN_WIDTH, _LONGEST_NAME = 14, 640.0, 80
MAX_GPUS = 20_000
"""Of a larger cluster a cell is a domain, not a GPU."""
MAX_NODE_GPUS = 16
MAX_CELLS = 16_000
"""Of a cluster with more domains a cell is a block, a cluster or a region; what is beyond is not drawn."""
MAX_TITLED = 1_000
"""Boxes with a title of their own. With MAX_CELLS it bounds the size of a picture, whatever names a cluster has."""
_LONGEST_TITLE = 40
GPU = 5
"""The width and height of a GPU, with 1 between two of a node."""
BAR, BAR_WIDTH = 6, 36
"""The height and width of the bar of a place."""
_LEVELS = Location._fields


class PlanPage:
    """Collects the parts of a page; a sheet for `render_run`."""

    width = 160

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts: list[str] = []
        self._picture = ""
        self._left = MAX_SIZE

    def line(self, content: str, style: str = "") -> None:
        """Add a line."""
        self._add(f'<div class="{style}">{_short(content)}</div>')

    def heading(self, content: str) -> None:
        """Add a heading."""
        self._add(f"<h2>{_short(content)}</h2>")

    def numbered(self, sentences: Iterable[str]) -> None:
        """Add a numbered list."""
        self._add(f"<ol>{''.join(f'<li>{_short(sentence)}</li>' for sentence in sentences)}</ol>")

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str | int | Text]],
        more: str = "",
        limit: int | None = MAX_ROWS,
    ) -> None:
        """Add a table without its empty columns. `more` names the rows beyond `limit`."""
        most = MAX_ROWS if limit is None else min(limit, MAX_ROWS)
        filled = [at for at in range(len(columns)) if any(str(row[at]) for row in rows)]
        head = "".join(f"<th>{text(columns[at])}</th>" for at in filled)
        body = "".join(f"<tr>{''.join(f'<td>{_cell(row[at])}</td>' for at in filled)}</tr>" for row in rows[:most])
        self._add(f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>')
        if len(rows) > most:
            self.line(f"... and {len(rows) - most} more {more}; -o json has all")

    def picture(self, lines: Iterable[str]) -> None:
        """Set the picture in SVG, which comes after the first line."""
        self._picture = f'<div class="wide picture">{"".join(lines)}</div>'

    def _add(self, part: str) -> None:
        self._left -= len(part)
        if self._left >= 0:
            self._parts.append(part)

    def html(self) -> Iterator[str]:
        """Yield the lines of the page."""
        title = _short(self._title)
        yield f"{_HEAD}\n<title>{title}</title>\n{_STYLE}</head>\n<body><h1>{title}</h1>"
        yield from (*self._parts[:1], self._picture, *self._parts[1:])
        if self._left < 0:
            yield "<p>... -o json has more</p>"
        yield "</body></html>"


def _short(content: str) -> str:
    return text(cut(content, MAX_TEXT))


def _cell(cell: str | int | Text) -> str:
    if not isinstance(cell, Text):
        return _short(str(cell))
    spans = "".join(
        f'<span class="{span.style}">{text(cell.plain[span.start : span.end])}</span>' for span in cell.spans
    )
    return f"<code>{spans}</code>"


class _Style(NamedTuple):
    """How a part is drawn: a class of CSS, its color, and its meaning for the legend."""

    name: str
    color: str
    meaning: str


STYLES = (
    _Style("r", "#2e7d32", "this plan"),
    _Style("s", "#00acc1", "its spares"),
    _Style("o", "#90a4ae", "used by others"),
    _Style("t", "#fbc02d", "stranded"),
    _Style("f", "#a9d5b2", "free"),
    _Style("x", "#ef9a9a", "not for this run"),
)
"""In the order of Parts."""


class _Segment(NamedTuple):
    """A part of a cell: its class, and a line with its length in pixels. All GPUs of a node are dashes of a line."""

    kind: str
    left: int
    width: int


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


def picture(drawn: Drawing, captions: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a picture: legend and sentences, of which long ones are cut, above the boxes."""
    width = max(drawn.box.width, _MIN_WIDTH)
    texts = _wrapped(_captions(drawn, captions), int(width / boxes.CHARACTER) - 4)
    top = 28 + _LINE * len(texts)
    yield boxes.head(width, drawn.box.height + top)
    yield f"<title>{boxes.text(drawn.box.title)}</title>"
    yield _style(GPU if drawn.cell == "node" else BAR, dashed=drawn.cell == "node")
    yield from _legend(drawn.total)
    for number, caption in enumerate(texts, 1):
        yield f'<text x="{boxes.PADDING}" y="{20 + _LINE * number}">{boxes.text(caption)}</text>'
    named = drawn.cells <= MAX_TOOLTIPS
    for one in boxes.placed(drawn.box, 0, top):
        yield from boxes.frame(one)
        cells = [(int(one.x + left), int(one.y + down), cell) for left, down, cell in one.box.items]
        yield from _named(cells, drawn.cell) if named else _paths(cells, drawn.cell)
    yield "</svg>"


def _legend(total: Parts) -> Iterator[str]:
    at = float(boxes.PADDING)
    for style, count in zip(STYLES, total, strict=True):
        name = f"{style.meaning} {count}"
        yield f'<rect x="{at:g}" y="6" width="12" height="12" fill="{style.color}" stroke="#607d8b"/>'
        yield f'<text x="{at + 16:g}" y="16">{name}</text>'
        at += 26 + len(name) * boxes.CHARACTER


def _captions(drawn: Drawing, captions: Sequence[str]) -> Iterator[str]:
    yield "a square is a GPU, a row of them a node" if drawn.cell == "node" else f"a bar is a {drawn.cell}"
    if drawn.omitted:
        yield f"not drawn: {drawn.omitted} more places"
    if drawn.quarantined:
        yield f"not drawn: {count_of(drawn.quarantined, 'quarantined node')}, whose place or GPUs are unknown"
    for caption in captions[:MAX_CAPTIONS]:
        yield boxes.cut(caption, MAX_CAPTION)


def _wrapped(texts: Iterator[str], columns: int) -> list[str]:
    return [line for text in texts for line in wrap(text, columns) or [""]]


def _style(height: int, *, dashed: bool) -> str:
    dash = f";stroke-dasharray:{GPU} 1" if dashed else ""
    colors = "".join(f".{style.name}{{stroke:{style.color}}}" for style in STYLES)
    return f"<style>path{{fill:none;stroke-width:{height}{dash}}}{colors}.m{{stroke:#1b2a1d;stroke-width:1}}</style>"


def _named(cells: Sequence[tuple[int, int, Cell]], kind: str) -> Iterator[str]:
    """Yield cells one by one, each with its name and figures for the mouse."""
    for cell in cells:
        paths = "".join(_paths([cell], kind))
        yield f"<g><title>{boxes.text(_about(cell[2], kind))}</title>{paths}</g>"


def _about(cell: Cell, kind: str) -> str:
    shown = ", ".join(f"{count} {style.meaning}" for style, count in zip(STYLES, cell.parts, strict=True) if count)
    return f"{kind} {boxes.cut(cell.name, _LONGEST_NAME)}: {shown or 'no GPUs'}"


def _paths(cells: Sequence[tuple[int, int, Cell]], kind: str) -> Iterator[str]:
    """Yield one path for each part of all cells: its lines are the cells' GPUs, or their shares of a bar."""
    lines: dict[str, list[str]] = {}
    marked = []
    for x, y, cell in cells:
        middle = y + (GPU if kind == "node" else BAR) / 2
        for segment in _segments(cell.parts, kind):
            lines.setdefault(segment.kind, []).append(f"M{x + segment.left} {middle:g}h{segment.width}")
        if kind != "node" and cell.parts.run + cell.parts.spares:
            marked.append(f"M{x - 1}.5 {y - 1}.5h{BAR_WIDTH + 1}v{BAR + 1}h-{BAR_WIDTH + 1}z")
    for name, found in lines.items():
        yield f'<path class="{name}" d="{"".join(found)}"/>'
    if marked:
        yield f'<path class="m" d="{"".join(marked)}"/>'


def _segments(parts: Parts, kind: str) -> Iterator[_Segment]:
    widths = [count * (GPU + 1) for count in parts] if kind == "node" else _shares(parts)
    at = 0
    for style, width in zip(STYLES, widths, strict=True):
        if width:
            yield _Segment(style.name, at, width - 1 if kind == "node" else width)
        at += width


def _shares(parts: Parts) -> list[int]:
    """Return the pixels of each part of a bar: at least one unless it is empty, and the rounding to the longest."""
    found = [max(1, BAR_WIDTH * count // parts.total) if count else 0 for count in parts]
    found[found.index(max(found))] += BAR_WIDTH - sum(found)
    return found


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
    name = boxes.cut(members[0].place[level], _LONGEST_TITLE)
    # A domain is narrow: its name says what it is.
    return name if level + 1 == len(_LEVELS) else f"{_LEVELS[level]} {name}"
