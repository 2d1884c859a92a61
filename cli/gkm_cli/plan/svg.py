"""A plan as an SVG picture: where the run lies in the cluster, and beside whom. Pure.

A node is a row of squares, one for each GPU. In a large cluster a domain is one bar, with a frame if the run is there.
"""

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import NamedTuple

from gkm.api.grammar import count_of

from gkm_cli import boxes
from gkm_cli.plan.drawing import BAR, BAR_WIDTH, GPU, Cell, Drawing, Parts


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
MAX_TOOLTIPS = 2_000
"""Cells with a name that appears under the mouse."""
MAX_CAPTION = 600
MAX_CAPTIONS = 40
_LINE, _MIN_WIDTH, _LONGEST_NAME = 14, 640.0, 80


class _Segment(NamedTuple):
    """A part of a cell: its class, and a line with its length in pixels. All GPUs of a node are dashes of a line."""

    kind: str
    left: int
    width: int


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
