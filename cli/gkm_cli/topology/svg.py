"""A tree as an SVG picture: boxes in boxes, and a square for each node, colored by its free GPUs. Pure.

Text comes from labels and switches. It is escaped for XML, and stands in text nodes only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, sqrt
from xml.sax.saxutils import escape as escape_xml

from gkm.hoststate.escaping import escape
from gkm.topology.eligibility import Exclusion
from gkm.topology.tree import Tree

from gkm_cli.topology.capacity import FREE, FULL, PARTLY, Capacity
from gkm_cli.topology.outline import Branch, Outline

_CELL, _GAP, _PADDING, _TITLE = 12, 3, 8, 16
_CHARACTER = 6.2
"""The width of a character at this size of the font, about."""
_LONGEST_NAME = 48
_SQUAREST = 9
"""Nodes of a row at least, as a rack has."""
_WIDER = 2.5
"""A box is so many times wider than high, about."""
_NO_GPUS = Exclusion.NO_GPUS.value
_COLORS = {FREE: "#2e7d32", PARTLY: "#9ccc65", FULL: "#90a4ae", _NO_GPUS: "#eceff1"}
_UNUSABLE_COLOR = "#e53935"
_LEGEND = {**_COLORS, "not usable": _UNUSABLE_COLOR}
_FILLS = ("#ffffff", "#f5f7fa", "#e8edf3", "#dbe3ec")


@dataclass(slots=True)
class _Box:
    """A domain with its size; nodes and inner boxes have their positions in it."""

    title: str
    width: float
    height: float
    nodes: list[tuple[float, float, int]] = field(default_factory=list)
    boxes: list[tuple[float, float, "_Box"]] = field(default_factory=list)


def picture(tree: Tree, outline: Outline, capacity: Capacity, closest: str = "") -> Iterator[str]:
    """Yield the lines of the picture; a domain of the level `closest` has all its nodes and no inner domain."""
    boxes = [_box(branch, capacity, closest) for branch in outline.branches]
    total = capacity.of(0, len(tree.nodes))
    all_ = _filled(f"{total.free} of {total.capacity} GPUs free on {total.nodes} nodes", outline.nodes, boxes)
    width, height = max(all_.width, 420.0), all_.height + 22
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" font-family="sans-serif" font-size="11">'
    )
    yield f"<title>{_text(all_.title)}</title>"
    yield from _drawn(all_, tree.nodes, capacity.states)
    at = float(_PADDING)
    for name, color in _LEGEND.items():
        yield f'<rect x="{at:g}" y="{height - 18:g}" width="{_CELL}" height="{_CELL}" fill="{color}" stroke="#607d8b"/>'
        yield f'<text x="{at + 16:g}" y="{height - 8:g}">{name}</text>'
        at += 26 + len(name) * _CHARACTER
    yield "</svg>"


def _box(branch: Branch, capacity: Capacity, closest: str) -> _Box:
    sums = capacity.of(branch.first, branch.end)
    name = f"{branch.level} {branch.switch or branch.name}"
    name = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
    title = f"{name}: {sums.free} of {sums.capacity}"
    if branch.level == closest:
        return _filled(title, range(branch.first, branch.end), [])
    # Trees have at most 14 levels.
    return _filled(title, branch.nodes, [_box(inner, capacity, closest) for inner in branch.branches])


def _filled(title: str, nodes: Sequence[int], boxes: Sequence[_Box]) -> _Box:
    """Return a box with the inner boxes in rows, and the nodes in a grid below."""
    area = sum((box.width + _PADDING) * (box.height + _PADDING) for box in boxes)
    target = max([sqrt(area * _WIDER), *(box.width for box in boxes)])
    found = _Box(title, 2 * _PADDING + len(title) * _CHARACTER, 0)
    x, y, row = float(_PADDING), float(_PADDING + _TITLE), 0.0
    for box in boxes:
        if x > _PADDING and x + box.width > target + _PADDING:
            x, y, row = float(_PADDING), y + row + _PADDING, 0.0
        found.boxes.append((x, y, box))
        x, row = x + box.width + _PADDING, max(row, box.height)
        found.width = max(found.width, x)
    y += row + _PADDING if boxes else 0
    columns = max(min(len(nodes), _SQUAREST), ceil(sqrt(2 * len(nodes))))
    step = _CELL + _GAP
    found.nodes = [
        (_PADDING + number % columns * step, y + number // columns * step, index) for number, index in enumerate(nodes)
    ]
    found.width = max(found.width, 2 * _PADDING + columns * step - _GAP)
    found.height = y + (ceil(len(nodes) / columns) * step - _GAP + _PADDING if nodes else 0)
    return found


def _drawn(
    box: _Box, names: Sequence[str], states: Sequence[str], at: tuple[float, float] = (0, 0), depth: int = 0
) -> Iterator[str]:
    """Yield the elements of a box, and of those in it."""
    x, y = at
    fill = _FILLS[min(depth, len(_FILLS) - 1)]
    size = f'width="{box.width:g}" height="{box.height:g}"'
    yield f'<rect x="{x:g}" y="{y:g}" {size} rx="4" fill="{fill}" stroke="#607d8b"/>'
    yield f'<text x="{x + _PADDING:g}" y="{y + _TITLE:g}">{_text(box.title)}</text>'
    for left, top, index in box.nodes:
        place = f'x="{x + left:g}" y="{y + top:g}" width="{_CELL}" height="{_CELL}"'
        title = f"<title>{_text(names[index])}: {states[index]}</title>"
        yield f'<rect {place} fill="{_COLORS.get(states[index], _UNUSABLE_COLOR)}">{title}</rect>'
    for left, top, inner in box.boxes:
        yield from _drawn(inner, names, states, (x + left, y + top), depth + 1)


def _text(text: str) -> str:
    return escape_xml(escape(text))
