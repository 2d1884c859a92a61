"""Every layout of a small domain, tried: the fewest spares beside their group, then the fewest (group, node) pairs.

It shares nothing with the planner but the values that go in: groups take slots one after another in every way there
is, and of ways that leave the same slots only the cheapest is followed.
"""

from collections.abc import Iterator, Sequence

from gkm.packing.nodes.demands import GroupDemand, GroupNodes, NodeSlots

Costs = tuple[int, int]


def best_costs(nodes: Sequence[NodeSlots], groups: Sequence[GroupDemand]) -> Costs | None:
    """Return the least (spares beside their group, pairs of group and node); None if the groups do not fit."""
    reached: dict[tuple[int, ...], Costs] = {tuple(node.slots for node in nodes): (0, 0)}
    for group in groups:
        after: dict[tuple[int, ...], Costs] = {}
        for left, (shared, pairs) in reached.items():
            open_to = tuple(slots if group.scope in node.scopes else 0 for slots, node in zip(left, nodes, strict=True))
            for pods in _spread(open_to, group.pods):
                rest = tuple(slots - count for slots, count in zip(open_to, pods, strict=True))
                for spares in _spread(rest, group.spares):
                    beside = sum(count for count, own in zip(spares, pods, strict=True) if own)
                    cost = shared + beside, pairs + sum(count > 0 for count in pods)
                    state = tuple(a - b - c for a, b, c in zip(left, pods, spares, strict=True))
                    after[state] = min(after.get(state, cost), cost)
        reached = after
    return min(reached.values(), default=None)


def costs_of(groups: Sequence[GroupNodes]) -> Costs:
    """Return what a layout costs, counted in it."""
    shared = sum(node in dict(group.pods) for group in groups for node in group.spares)
    return shared, sum(len({name for name, _ in group.pods}) for group in groups)


def wrong(nodes: Sequence[NodeSlots], groups: Sequence[GroupDemand], placed: Sequence[GroupNodes]) -> Iterator[str]:
    """Yield what a layout breaks: sizes, scopes and slots."""
    left = {node.name: node.slots for node in nodes}
    scopes = {node.name: node.scopes for node in nodes}
    if len(placed) != len(groups):
        yield f"{len(placed)} groups, not {len(groups)}"
    for number, (group, found) in enumerate(zip(groups, placed, strict=False)):
        if sum(count for _, count in found.pods) != group.pods or any(count < 1 for _, count in found.pods):
            yield f"group {number} has pods {found.pods}, not {group.pods}"
        if len({name for name, _ in found.pods}) != len(found.pods):
            yield f"group {number} names a node twice"
        if len(found.spares) != group.spares:
            yield f"group {number} has spares {found.spares}, not {group.spares}"
        for name, count in [*found.pods, *((name, 1) for name in found.spares)]:
            left[name] -= count
            if group.scope not in scopes[name]:
                yield f"group {number} is on {name}, which is not in its scope"
    yield from (f"node {name} gives {-count} slots too many" for name, count in left.items() if count < 0)


def _spread(slots: Sequence[int], count: int) -> Iterator[tuple[int, ...]]:
    """Yield every way to take so many slots."""
    if not slots:
        if not count:
            yield ()
        return
    for taken in range(min(slots[0], count) + 1):
        for others in _spread(slots[1:], count - taken):
            yield taken, *others
