"""Lay out nested boxes for SVG pictures: titles, inner boxes in rows, and items of one size in a grid below. Pure.

Text comes from labels and switches. It is escaped for XML, and stands in text nodes only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, sqrt
from typing import Generic, NamedTuple, TypeVar
from xml.sax.saxutils import escape as escape_xml

from gkm.hoststate.escaping import escape

T = TypeVar("T")

CHARACTER = 6.2
"""The approximate width of a character at FONT_SIZE, in pixels."""
FONT_SIZE = 11
PADDING, TITLE = 8, 16
_SQUAREST = 9
"""The minimum number of items in a row, for example nodes of a rack."""
_WIDER = 2.5
"""How many times wider than high a box is, approximately."""
MAX_WIDTH = 1_200.0
"""The largest width of a picture in pixels: a window of 1,280 pixels shows it without shrinking the texts."""
_FILLS = ("#ffffff", "#f5f7fa", "#e8edf3", "#dbe3ec")


class Size(NamedTuple):
    """The width and height of an item in pixels, with the gap to the next item."""

    width: float
    height: float
    gap: float = 3


@dataclass(slots=True)
class Box(Generic[T]):
    """A box in an SVG picture with its size; items and inner boxes have their positions in it. The title may be ""."""

    title: str
    width: float
    height: float
    items: list[tuple[float, float, T]] = field(default_factory=list)
    boxes: list[tuple[float, float, "Box[T]"]] = field(default_factory=list)


class PlacedBox(NamedTuple, Generic[T]):
    """A box with its position in the picture, in pixels. `depth` is 0 for the outermost box."""

    box: Box[T]
    x: float
    y: float
    depth: int


def filled(title: str, items: Sequence[T], size: Size, boxes: Sequence[Box[T]], depth: int = 0) -> Box[T]:
    """Return a box with the inner boxes in rows, and the items in a grid below; `depth` is the number of outer boxes.

    It is as wide that the outermost box is not wider than MAX_WIDTH, unless a single item or title is.
    """
    widest = MAX_WIDTH - 2 * PADDING * (depth + 1)
    area = sum((box.width + PADDING) * (box.height + PADDING) for box in boxes)
    target = max([min(sqrt(area * _WIDER), widest), *(box.width for box in boxes)])
    found = Box[T](title, 2 * PADDING + len(title) * CHARACTER, 0)
    x, y, row = float(PADDING), float(PADDING + TITLE if title else PADDING), 0.0
    for box in boxes:
        if x > PADDING and x + box.width > target + PADDING:
            x, y, row = float(PADDING), y + row + PADDING, 0.0
        found.boxes.append((x, y, box))
        x, row = x + box.width + PADDING, max(row, box.height)
        found.width = max(found.width, x)
    y += row + PADDING if boxes else 0
    across, down = size.width + size.gap, size.height + size.gap
    columns = max(min(len(items), _SQUAREST), ceil(sqrt(2 * len(items) * down / across)))
    columns = max(1, min(columns, int((widest + size.gap) // across)))
    found.items = [
        (PADDING + number % columns * across, y + number // columns * down, item) for number, item in enumerate(items)
    ]
    found.width = max(found.width, 2 * PADDING + columns * across - size.gap)
    found.height = y + (ceil(len(items) / columns) * down - size.gap + PADDING if items else 0)
    return found


def placed(box: Box[T], x: float = 0, y: float = 0, depth: int = 0) -> Iterator[PlacedBox[T]]:
    """Yield a box and its inner boxes with positions, outer boxes first."""
    yield PlacedBox(box, x, y, depth)
    for left, top, inner in box.boxes:
        yield from placed(inner, x + left, y + top, depth + 1)


def frame(one: PlacedBox[T]) -> Iterator[str]:
    """Yield the SVG elements of a box: its frame and title."""
    fill = _FILLS[min(one.depth, len(_FILLS) - 1)]
    size = f'width="{one.box.width:g}" height="{one.box.height:g}"'
    yield f'<rect x="{one.x:g}" y="{one.y:g}" {size} rx="4" fill="{fill}" stroke="#607d8b"/>'
    if one.box.title:
        yield f'<text x="{one.x + PADDING:g}" y="{one.y + TITLE:g}">{text(one.box.title)}</text>'


def head(width: float, height: float) -> str:
    """Return the opening SVG tag of a picture."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" font-family="sans-serif" font-size="{FONT_SIZE}">'
    )


def cut(name: str, most: int) -> str:
    """Return a name, cut to at most `most` characters."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def text(content: str) -> str:
    """Return untrusted text escaped for an XML text node."""
    return escape_xml(escape(content))
