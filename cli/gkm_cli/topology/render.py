"""Trees as text: lines of branches, tables of capacity, and the faults of nodes."""

from collections import Counter
from collections.abc import Iterator, Sequence

from gkm.api.grammar import agree, count_of, listed
from gkm.api.node_names import fold_sorted
from gkm.topology.trees.tree import Tree

from gkm_cli.output import supports_unicode
from gkm_cli.terminal import Terminal
from gkm_cli.topology.capacity import IntervalCapacity
from gkm_cli.topology.outline import Branch, Outline

MAX_LISTED = 8
_LEVEL_COLUMNS = ("level", "domains", "most free GPUs in one", "most free nodes in one", "nodes outside")
_LINES, _ASCII = ("├─ ", "└─ ", "│  ", "   "), ("|- ", "`- ", "|  ", "   ")
_MESSAGES = 3
"""Contradictions and messages of one reason that are shown; -o json has all."""


def render_tree(tree: Tree, outline: Outline, notes: Sequence[str]) -> None:
    """Print the domains with their nodes and faults."""
    terminal = Terminal()
    for prefix, branch in _lines(outline, ""):
        nodes = f": {_folded(tree, branch.nodes)}" if branch.nodes else ""
        terminal.line(f"{prefix}{branch.shown}{nodes}")
    if outline.nodes:
        terminal.line(f"in no domain: {_folded(tree, outline.nodes)}")
    render_problems(terminal, tree, notes)


def render_capacity(
    tree: Tree, outline: Outline, capacity: IntervalCapacity, notes: Sequence[str], closest: str = ""
) -> None:
    """Print the GPUs of each domain from the widest level to the `closest`, of each level, and what is wrong."""
    terminal = Terminal()
    rows = []
    for prefix, branch in _lines(outline, closest):
        sums = capacity.of(branch.first, branch.end)
        unusable = sums.nodes - sums.usable or ""
        rows.append((f"{prefix}{branch.shown}", sums.nodes, sums.capacity, sums.free, sums.wholly_free, unusable))
    columns = ("domain", "nodes", "GPUs", "free", "free nodes", "not usable")
    terminal.table(columns, rows, limit=None)
    terminal.line("")
    terminal.table(_LEVEL_COLUMNS, _levels(tree, outline, capacity))
    total = capacity.of(0, len(tree.nodes))
    terminal.line(f"{total.free} of {count_of(total.capacity, 'GPU')} {agree(total.free, 'is', 'are')} free")
    for state, count in capacity.unusable().items():
        terminal.line(f"not usable: {count_of(count, 'node')} {agree(count, 'is', 'are')} {state}")
    render_problems(terminal, tree, notes)


def render_problems(terminal: Terminal, tree: Tree, notes: Sequence[str]) -> None:
    """Print the quarantined nodes with the reasons, the contradictions, and notes."""
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
