"""Draw many equal things, such as nodes, as cells in boxes of their places; parts of a cell have colors. Pure.

A cell is a row of squares, one for each part of one, such as the GPUs of a node; or, where there are too many, a bar
with the shares of its parts.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from textwrap import wrap
from typing import NamedTuple

from gkm_cli import boxes
from gkm_cli.boxes import Box, Size

MAX_TOOLTIPS = 2_000
"""Limit of cells with a tooltip."""
MAX_CAPTION = 600
MAX_CAPTIONS = 40
MAX_TITLED = 1_000
"""Limit of boxes with a title, which limits the size of a picture."""
SQUARE = 5
"""The width and height of a square, with 1 between two of a cell."""
BAR, BAR_WIDTH = 6, 36
"""The height and width of a bar."""
_LINES_OF_SQUARES = f'<g fill="none" stroke-width="{SQUARE}" stroke-dasharray="{SQUARE} 1">'
_LINES_OF_BARS = f'<g fill="none" stroke-width="{BAR}">'
_LINE, _MIN_WIDTH, _LONGEST_NAME, _LONGEST_TITLE = 14, 640.0, 80, 40


class Style(NamedTuple):
    """How a part of a cell is drawn: its CSS class, its color, and its meaning in the legend ("" for no entry)."""

    name: str
    color: str
    meaning: str


class _Segment(NamedTuple):
    """A part of a cell: its class, and a line with its length in pixels. All squares of a cell are dashes of a line."""

    kind: str
    left: int
    width: int


class Cell(NamedTuple):
    """One drawn object, such as a node. `place` names the boxes around it, the outermost first.

    `parts` has the number of parts in each of the drawing's styles, in the order of `Drawing.styles`.
    """

    place: tuple[str, ...]
    name: str
    parts: Sequence[int]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture to draw: its cells with their places, and the meaning of a cell. With `squares`, each part is squares.

    A bar has a frame if one of its first `marked` parts is not empty. `notes` are sentences about the picture.
    """

    box: Box[Cell]
    cell: str
    styles: Sequence[Style]
    total: Sequence[int]
    cells: int
    squares: bool = False
    marked: int = 0
    notes: tuple[str, ...] = ()


def picture(drawn: Drawing, captions: Sequence[str]) -> Iterator[str]:
    """Yield the lines of an SVG picture: legend and sentences, of which long ones are cut, above the boxes."""
    width = max(drawn.box.width, _MIN_WIDTH)
    sentences = (*drawn.notes, *(boxes.cut(caption, MAX_CAPTION) for caption in captions[:MAX_CAPTIONS]))
    columns = int(width / boxes.CHARACTER) - 4
    texts = [line for sentence in sentences for line in wrap(sentence, columns) or [""]]
    top = 28 + _LINE * len(texts)
    yield boxes.head(width, drawn.box.height + top)
    yield f"<title>{boxes.text(drawn.box.title)}</title>"
    yield _colors(drawn)
    yield from _legend(drawn)
    for number, caption in enumerate(texts, 1):
        yield f'<text x="{boxes.PADDING}" y="{20 + _LINE * number}">{boxes.text(caption)}</text>'
    for one in boxes.placed(drawn.box, 0, top):
        yield from boxes.frame(one)
        if one.box.items:
            cells = [(int(one.x + left), int(one.y + down), cell) for left, down, cell in one.box.items]
            yield _LINES_OF_SQUARES if drawn.squares else _LINES_OF_BARS
            yield from _named(cells, drawn) if drawn.cells <= MAX_TOOLTIPS else _paths(cells, drawn)
            yield "</g>"
    yield "</svg>"


def nested(cells: Sequence[Cell], words: Sequence[str], size: Size) -> list[Box[Cell]]:
    """Return the nested boxes of cells that are sorted by place. `words` precede the names of boxes at each level.

    The boxes of a level have no title if there are more than MAX_TITLED.
    """
    depths = range(1, len(words) + 1)
    titled = [len({cell.place[:depth] for cell in cells}) <= MAX_TITLED for depth in depths]
    return _boxes(cells, [word if shown else None for word, shown in zip(words, titled, strict=True)], size, 0)


def _boxes(cells: Sequence[Cell], words: Sequence[str | None], size: Size, level: int) -> list[Box[Cell]]:
    if level == len(words):
        return []
    found = []
    for _, same in groupby(cells, key=lambda cell: cell.place[: level + 1]):
        members = list(same)
        inner = _boxes(members, words, size, level + 1)
        word, name = words[level], boxes.cut(members[0].place[level], _LONGEST_TITLE)
        title = "" if word is None else f"{word} {name}".lstrip()
        found.append(boxes.filled(title, members if level + 1 == len(words) else [], size, inner, level + 1))
    return found


def _legend(drawn: Drawing) -> Iterator[str]:
    at = float(boxes.PADDING)
    for style, count in zip(drawn.styles, drawn.total, strict=True):
        if not style.meaning:
            continue
        name = f"{style.meaning} {count}"
        yield f'<rect x="{at:g}" y="6" width="12" height="12" fill="{style.color}" stroke="#607d8b"/>'
        yield f'<text x="{at + 16:g}" y="16">{name}</text>'
        at += 26 + len(name) * boxes.CHARACTER


def _colors(drawn: Drawing) -> str:
    """Return the colors of classes. In a page they hold for all of its pictures, so their names differ."""
    return f"<style>{''.join(f'.{style.name}{{stroke:{style.color}}}' for style in drawn.styles)}</style>"


def _named(cells: Iterable[tuple[int, int, Cell]], drawn: Drawing) -> Iterator[str]:
    """Yield cells one by one, each with its name and figures for the mouse."""
    for cell in cells:
        paths = "".join(_paths([cell], drawn))
        yield f"<g><title>{boxes.text(_about(cell[2], drawn))}</title>{paths}</g>"


def _about(cell: Cell, drawn: Drawing) -> str:
    parts = zip(drawn.styles, cell.parts, strict=True)
    shown = ", ".join(f"{count} {style.meaning}" for style, count in parts if count)
    return f"{drawn.cell} {boxes.cut(cell.name, _LONGEST_NAME)}: {shown or 'empty'}"


def _paths(cells: Iterable[tuple[int, int, Cell]], drawn: Drawing) -> Iterator[str]:
    """Yield one path for each part of all cells: its lines are the cells' squares, or their shares of a bar."""
    lines: dict[str, list[str]] = {}
    marked = []
    for x, y, cell in cells:
        middle = y + (SQUARE if drawn.squares else BAR) / 2
        for segment in _segments(cell.parts, drawn):
            lines.setdefault(segment.kind, []).append(f"M{x + segment.left} {middle:g}h{segment.width}")
        if not drawn.squares and any(cell.parts[: drawn.marked]):
            marked.append(f"M{x - 1}.5 {y - 1}.5h{BAR_WIDTH + 1}v{BAR + 1}h-{BAR_WIDTH + 1}z")
    for name, found in lines.items():
        yield f'<path class="{name}" d="{"".join(found)}"/>'
    if marked:
        yield f'<path class="m" stroke="#1b2a1d" stroke-width="1" d="{"".join(marked)}"/>'


def _segments(parts: Sequence[int], drawn: Drawing) -> Iterator[_Segment]:
    widths = [count * (SQUARE + 1) for count in parts] if drawn.squares else _shares(parts)
    at = 0
    for style, width in zip(drawn.styles, widths, strict=True):
        if width:
            yield _Segment(style.name, at, width - 1 if drawn.squares else width)
        at += width


def _shares(parts: Sequence[int]) -> list[int]:
    """Return the pixels of each part of a bar: at least one unless it is empty, and the rounding to the longest."""
    total = sum(parts)
    found = [max(1, BAR_WIDTH * count // total) if count else 0 for count in parts]
    found[found.index(max(found))] += BAR_WIDTH - sum(found)
    return found
