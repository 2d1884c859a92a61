"""Trees as lines of branches, tables of capacity and faults, an SVG picture, and JSON whose fields only grow.

All forms read one outline: the tree without the domains that a node has for itself, as nested values.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gkm.api.grammar import agree, count_of, listed
from gkm.api.node_names import fold_sorted
from gkm.api.topology_settings import Topology
from gkm.topology.eligibility import Exclusion
from gkm.topology.trees.names import hypernode_name
from gkm.topology.trees.tree import Domain, Tree, nested
from msgspec import to_builtins

from gkm_cli import boxes
from gkm_cli.boxes import Box, Size
from gkm_cli.output import supports_unicode
from gkm_cli.terminal import Sheet, Terminal
from gkm_cli.topology.capacity import FREE, FULL, PARTLY, IntervalCapacity

MAX_LISTED = 8
_LEVEL_COLUMNS = ("level", "domains", "most free GPUs in one", "most free nodes in one", "nodes outside")
_LINES, _ASCII = ("├─ ", "└─ ", "│  ", "   "), ("|- ", "`- ", "|  ", "   ")
_MESSAGES = 3
"""Contradictions and messages of one reason that are shown; -o json has all."""
_CELL = 12
_LONGEST_NAME = 48
_NO_GPUS = Exclusion.NO_GPUS.value
_COLORS = {FREE: "#2e7d32", PARTLY: "#9ccc65", FULL: "#90a4ae", _NO_GPUS: "#eceff1"}
_UNUSABLE_COLOR = "#e53935"
_LEGEND = {**_COLORS, "not usable": _UNUSABLE_COLOR}
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Branch:
    """A domain in the outline of a tree: nodes from index `first` up to `end`, some in `branches`, others in `nodes`.

    `hypernode` is the name of its HyperNode, `switch` the name of the switch that names it, for people; "" if absent.
    """

    level: str
    name: str
    switch: str
    hypernode: str
    first: int
    end: int
    nodes: tuple[int, ...]
    branches: tuple["Branch", ...]

    @property
    def shown(self) -> str:
        """Return level and name of the domain for a person."""
        return f"{self.level} {self.name} ({self.switch})" if self.switch else f"{self.level} {self.name}"


class OutlineStep(NamedTuple):
    """A domain with its outer domain. `lasts` states for it, and for all around it, whether it is the last sibling."""

    branch: Branch
    parent: Branch | None
    lasts: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Outline:
    """The outline of a tree: the domains of the widest level that each node has, and the nodes without a domain."""

    branches: tuple[Branch, ...]
    nodes: tuple[int, ...]

    def walk(self, closest: str = "") -> Iterator[OutlineStep]:
        """Yield each domain, the outer one first; down to the level `closest`."""
        pending = [OutlineStep(branch, None, ()) for branch in reversed(self.branches)]
        while pending:
            step = pending.pop()
            yield step
            inner = step.branch.branches if step.branch.level != closest else ()
            pending += [OutlineStep(each, step.branch, (*step.lasts, each is inner[-1])) for each in reversed(inner)]


def render_tree(tree: Tree, outline: Outline, notes: Sequence[str]) -> None:
    """Print the domains of a tree with their nodes, and the tree's faults."""
    terminal = Terminal()
    for prefix, branch in _lines(outline, ""):
        nodes = f": {_folded(tree, branch.nodes)}" if branch.nodes else ""
        terminal.line(f"{prefix}{branch.shown}{nodes}")
    if outline.nodes:
        terminal.line(f"in no domain: {_folded(tree, outline.nodes)}")
    render_problems(terminal, tree, notes)


def render_capacity(
    terminal: Sheet, tree: Tree, outline: Outline, capacity: IntervalCapacity, closest: str = ""
) -> None:
    """Print the GPUs of each domain from the widest level to the `closest`, of each level, and unusable nodes."""
    rows = []
    for prefix, branch in _lines(outline, closest):
        sums = capacity.of(branch.first, branch.end)
        unusable = sums.nodes - sums.usable or ""
        rows.append((f"{prefix}{branch.shown}", sums.nodes, sums.capacity, sums.free, sums.wholly_free, unusable))
    columns = ("domain", "nodes", "GPUs", "free", "free nodes", "not usable")
    terminal.table(columns, rows, "domains", None)
    terminal.line("")
    terminal.table(_LEVEL_COLUMNS, _levels(tree, outline, capacity))
    total = capacity.of(0, len(tree.nodes))
    terminal.line(f"{total.free} of {count_of(total.capacity, 'GPU')} {agree(total.free, 'is', 'are')} free")
    for state, count in capacity.unusable().items():
        terminal.line(f"not usable: {count_of(count, 'node')} {agree(count, 'is', 'are')} {state}")


def render_problems(terminal: Sheet, tree: Tree, notes: Sequence[str]) -> None:
    """Print the quarantined nodes of a tree with the reasons, the contradictions, and notes."""
    for text in (*problems(tree), *(f"note: {note}" for note in notes)):
        terminal.line(text)


def problems(tree: Tree) -> Iterator[str]:
    """Yield the faults of the nodes and sources of a tree, in a few lines."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for entry in tree.quarantined:
        reasons.setdefault((entry.why.value, entry.message), []).append(entry.node)
    shown = Counter[str]()
    for (reason, message), names in sorted(reasons.items()):
        shown[reason] += 1
        if shown[reason] <= _MESSAGES:
            yield f"quarantined: {reason}: {listed(sorted(names), MAX_LISTED)}: {message}"
    for reason, count in shown.items():
        if count > _MESSAGES:
            yield f"quarantined: {reason}: {count - _MESSAGES} more messages; -o json has all"
    for contradiction in tree.contradictions[:_MESSAGES]:
        yield f"does not count: {contradiction.message}"
    if len(tree.contradictions) > _MESSAGES:
        yield f"does not count: {len(tree.contradictions) - _MESSAGES} more claims; -o json has all"


def _lines(outline: Outline, closest: str) -> Iterator[tuple[str, Branch]]:
    """Yield each domain with the lines before it."""
    child, last_child, line, blank = _LINES if supports_unicode() else _ASCII
    for branch, _, lasts in outline.walk(closest):
        around = (blank if last else line for last in lasts[:-1])
        yield "".join([*around, *(last_child if last else child for last in lasts[-1:])]), branch


def _levels(tree: Tree, outline: Outline, capacity: IntervalCapacity) -> list[tuple[str | int, ...]]:
    by_level: dict[str, list[Branch]] = {level: [] for level in reversed(tree.levels)}
    for branch, _, _ in outline.walk():
        by_level[branch.level].append(branch)
    rows: list[tuple[str | int, ...]] = []
    for level, branches in by_level.items():
        sums = [capacity.of(branch.first, branch.end) for branch in branches]
        outside = len(tree.nodes) - sum(each.nodes for each in sums)
        most = (max(each.free for each in sums), max(each.wholly_free for each in sums)) if sums else ("", "")
        rows.append((level, len(branches), *most, outside or ""))
    return rows


def _folded(tree: Tree, indexes: Sequence[int]) -> str:
    return fold_sorted(tree.nodes[index] for index in indexes)


def picture(tree: Tree, outline: Outline, capacity: IntervalCapacity, closest: str = "") -> Iterator[str]:
    """Yield the lines of an SVG picture of a tree; a domain of the level `closest` has all its nodes, no inner ones."""
    inner = [_box(branch, capacity, closest, 1) for branch in outline.branches]
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


def _box(branch: Branch, capacity: IntervalCapacity, closest: str, depth: int) -> Box[int]:
    sums = capacity.of(branch.first, branch.end)
    title = (
        f"{boxes.cut(f'{branch.level} {branch.switch or branch.name}', _LONGEST_NAME)}: {sums.free} of {sums.capacity}"
    )
    if branch.level == closest:
        return boxes.filled(title, range(branch.first, branch.end), Size(_CELL, _CELL), [], depth)
    # Trees have at most 14 levels.
    inner = [_box(each, capacity, closest, depth + 1) for each in branch.branches]
    return boxes.filled(title, branch.nodes, Size(_CELL, _CELL), inner, depth)


def tree_result(
    tree: Tree,
    outline: Outline,
    notes: Sequence[str],
    figures: Callable[[int, int], Json] | None = None,
    closest: str = "",
) -> Json:
    """Return the tree as JSON. `figures` returns further fields for the nodes from one index up to another.

    A node stands where it is directly in a domain; `parent` is the `hyperNode` of a wider domain. A domain of the level
    `closest` has all its nodes, and no inner domains.
    """

    def domain(branch: Branch, parent: Branch | None) -> Json:
        nodes = range(branch.first, branch.end) if branch.level == closest else branch.nodes
        return {
            "level": branch.level,
            "name": branch.name,
            "switch": branch.switch,
            "hyperNode": branch.hypernode,
            "parent": parent.hypernode if parent else None,
            "nodeCount": branch.end - branch.first,
            "nodes": [tree.nodes[index] for index in nodes],
            **(figures(branch.first, branch.end) if figures else {}),
        }

    return {
        "levels": list(tree.levels),
        "nodeCount": len(tree.nodes),
        **(figures(0, len(tree.nodes)) if figures else {}),
        "domains": [domain(branch, parent) for branch, parent, _ in outline.walk(closest)],
        "nodesInNone": [tree.nodes[index] for index in outline.nodes],
        "quarantined": [
            {"node": entry.node, "reason": entry.why.value, "message": entry.message} for entry in tree.quarantined
        ],
        "contradictions": to_builtins(tree.contradictions),
        "notes": list(notes),
    }


def outline(tree: Tree, settings: Topology, switches: Mapping[str, str] | None = None) -> Outline:
    """Return the outline of a tree; `switches` has names of switches by the names of domains."""
    hashed, names = settings.hyper_nodes.hash_names, switches or {}

    def branch(domain: Domain, inside: list[Branch | int]) -> Branch:
        level = tree.levels[domain.level]
        return Branch(
            level,
            domain.name,
            names.get(domain.name, ""),
            hypernode_name(level, domain.name, domain.identity, tree.levels, hashed=hashed),
            domain.first,
            domain.end,
            *_parted(inside),
        )

    leaves: Iterable[tuple[int, Branch | int]] = enumerate(range(len(tree.nodes)))
    nodes, outer = _parted(nested(tree, leaves, branch))
    return Outline(outer, nodes)


def _parted(units: list[Branch | int]) -> tuple[tuple[int, ...], tuple[Branch, ...]]:
    """Return the nodes and the branches among units."""
    nodes = tuple([unit for unit in units if isinstance(unit, int)])
    return nodes, tuple([unit for unit in units if isinstance(unit, Branch)])
