"""A tree as an SVG picture: boxes in boxes, and a square for each node, colored by its free GPUs. Pure."""

from collections.abc import Iterator

from gkm.topology.eligibility import Exclusion
from gkm.topology.trees.tree import Tree

from gkm_cli import boxes
from gkm_cli.boxes import Box, Size
from gkm_cli.topology.capacity import FREE, FULL, PARTLY, IntervalCapacity
from gkm_cli.topology.outline import Branch, Outline

_CELL = 12
_LONGEST_NAME = 48
_NO_GPUS = Exclusion.NO_GPUS.value
_COLORS = {FREE: "#2e7d32", PARTLY: "#9ccc65", FULL: "#90a4ae", _NO_GPUS: "#eceff1"}
_UNUSABLE_COLOR = "#e53935"
_LEGEND = {**_COLORS, "not usable": _UNUSABLE_COLOR}


def picture(tree: Tree, outline: Outline, capacity: IntervalCapacity, closest: str = "") -> Iterator[str]:
    """Yield the lines of the picture; a domain of the level `closest` has all its nodes and no inner domain."""
    inner = [_box(branch, capacity, closest) for branch in outline.branches]
    total = capacity.of(0, len(tree.nodes))
    title = f"{total.free} of {total.capacity} GPUs free on {total.nodes} nodes"
    all_ = boxes.filled(title, outline.nodes, Size(_CELL, _CELL), inner)
    width, height = max(all_.width, 420.0), all_.height + 22
    yield boxes.head(width, height)
    yield f"<title>{boxes.text(all_.title)}</title>"
    for one in boxes.placed(all_):
        yield from boxes.frame(one)
        for left, top, index in one.box.items:
            state = capacity.states[index]
            place = f'x="{one.x + left:g}" y="{one.y + top:g}" width="{_CELL}" height="{_CELL}"'
            name = f"<title>{boxes.text(tree.nodes[index])}: {state}</title>"
            yield f'<rect {place} fill="{_COLORS.get(state, _UNUSABLE_COLOR)}">{name}</rect>'
    at = float(boxes.PADDING)
    for name, color in _LEGEND.items():
        yield f'<rect x="{at:g}" y="{height - 18:g}" width="{_CELL}" height="{_CELL}" fill="{color}" stroke="#607d8b"/>'
        yield f'<text x="{at + 16:g}" y="{height - 8:g}">{name}</text>'
        at += 26 + len(name) * boxes.CHARACTER
    yield "</svg>"


def _box(branch: Branch, capacity: IntervalCapacity, closest: str) -> Box[int]:
    sums = capacity.of(branch.first, branch.end)
    title = (
        f"{boxes.cut(f'{branch.level} {branch.switch or branch.name}', _LONGEST_NAME)}: {sums.free} of {sums.capacity}"
    )
    if branch.level == closest:
        return boxes.filled(title, range(branch.first, branch.end), Size(_CELL, _CELL), [])
    # Trees have at most 14 levels.
    inner = [_box(each, capacity, closest) for each in branch.branches]
    return boxes.filled(title, branch.nodes, Size(_CELL, _CELL), inner)
