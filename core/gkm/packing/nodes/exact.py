"""The best layout of a small domain as an integer program, where the search of `search` has ended early (calculus.md).

Groups that are alike are counted, not told apart: a column says how many of them are on a set of nodes with so many
spares beside them. Whatever takes a set of nodes flows to these nodes, none of which has more than its slots.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from gkm.packing.errors import TooLargeError
from gkm.packing.nodes.demands import Costs, GroupDemand, NodeChoice, NodeSlots, slots_of
from gkm.packing.program import Program, SearchLimits, weighted

_LIMITS = SearchLimits(2_000)


def best_choices(nodes: Sequence[NodeSlots], groups: Sequence[GroupDemand]) -> tuple[Costs, list[NodeChoice]] | None:
    """Return what groups cost at least, the nodes of each, and the spares beside it; None if limits end the search."""
    program, counted = Program(), Counter(groups)
    columns: dict[GroupDemand, dict[NodeChoice, int]] = {}
    needs: dict[int, dict[int, int]] = {}
    for group, count in counted.items():
        takes = sum(1 << at for at, node in enumerate(nodes) if group.scope in node.scopes)
        found = columns[group] = {choice: program.column(count) for choice in _choices(nodes, group, takes)}
        program.row(dict.fromkeys(found.values(), 1), least=count, most=count)
        for (of, beside), column in found.items():
            for some, pods in ((of, group.pods + beside), (takes & ~of, group.spares - beside)):
                if pods:
                    needs.setdefault(some, {})[column] = pods
    taken: list[dict[int, int]] = [{} for _ in nodes]
    for of, need in needs.items():
        flows = {at: program.column(node.slots) for at, node in enumerate(nodes) if of >> at & 1}
        for at, column in flows.items():
            taken[at][column] = 1
        program.row(weighted((1, need), (-1, dict.fromkeys(flows.values(), 1))), least=0, most=0)
    for node, columns_of_node in zip(nodes, taken, strict=True):
        program.row(columns_of_node, most=node.slots)
    every = [item for found in columns.values() for item in found.items()]
    shared = {column: choice.beside for choice, column in every}
    pairs = {column: choice.nodes.bit_count() for choice, column in every}
    order = {column: number for found in columns.values() for number, column in enumerate(found.values())}
    try:
        solution = program.solve([shared, pairs, order], _LIMITS)
    except TooLargeError:
        return None
    if solution is None:
        raise AssertionError("the nodes have slots enough")
    chosen = {
        group: iter([choice for choice, column in found.items() for _ in range(solution.values[column])])
        for group, found in columns.items()
    }
    return (solution.reached[0], solution.reached[1]), [next(chosen[group]) for group in groups]


def _choices(nodes: Sequence[NodeSlots], group: GroupDemand, takes: int) -> Iterator[NodeChoice]:
    """Yield sets of nodes that hold the pods of a group and the spares beside it: those that cost least come first."""
    some = [of for of in range(1 << len(nodes)) if of & ~takes == 0 and of.bit_count() <= group.pods]
    holding = [of for of in some if slots_of(nodes, of) >= group.pods]
    for of in sorted(holding, key=lambda of: (of.bit_count(), slots_of(nodes, of), of)):
        yield from (NodeChoice(of, beside) for beside in range(group.spares * (of > 0) + 1))
