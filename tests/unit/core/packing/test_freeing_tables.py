"""The knapsack of nodes to free finds what trying every combination finds."""

from collections.abc import Iterator
from itertools import product

from gkm.packing.refusals.freeing_tables import Cell, Choice, Tables
from hypothesis import given, settings
from hypothesis import strategies as st

choices = st.builds(Choice, st.integers(0, 3), st.integers(0, 3), st.integers(0, 5), st.booleans())
all_rows = st.lists(st.lists(choices, max_size=3), max_size=4)
Sums = tuple[int, int, int, int]


def combined(rows: list[list[Choice]]) -> Iterator[Sums]:
    """Yield (short groups, groups, nodes, slots) of every way to take one choice of each row or none."""
    nothing = Choice(0, 0, 0, short=False)
    for taken in product(*[[nothing, *row] for row in rows]):
        yield (
            sum(choice.short for choice in taken),
            sum(choice.groups for choice in taken),
            sum(choice.nodes for choice in taken),
            sum(choice.slots for choice in taken),
        )


@settings(max_examples=400, deadline=None)
@given(all_rows, st.integers(0, 6), st.booleans())
def test_the_fewest_nodes_and_of_equals_the_most_slots(rows: list[list[Choice]], groups: int, short: bool) -> None:  # noqa: FBT001
    tables = Tables(rows, groups, nodes=0, short=True)
    cell = Cell(int(short), groups, 0)
    ways = [(nodes, -slots) for some, held, nodes, slots in combined(rows) if some == short and held >= groups]
    best = min(ways, default=None)
    assert tables.outcome(cell) == (None if best is None else (best[0], -best[1]))
    if best is not None:
        taken = [choice for _, choice in tables.read(cell)]
        assert (sum(c.nodes for c in taken), -sum(c.slots for c in taken)) == best
        assert sum(c.groups for c in taken) >= groups


@settings(max_examples=400, deadline=None)
@given(all_rows, st.integers(0, 5), st.integers(0, 9))
def test_with_nodes_as_an_axis_the_fewest_that_give_so_many_slots(
    rows: list[list[Choice]], groups: int, slots: int
) -> None:
    tables = Tables(rows, groups, nodes=12, short=True)
    cell = tables.least(0, groups, slots)
    ways = [nodes for short, held, nodes, given_ in combined(rows) if not short and held >= groups and given_ >= slots]
    assert (None if cell is None else cell.nodes) == min(ways, default=None)
    if cell is not None:
        taken = [choice for _, choice in tables.read(cell)]
        assert sum(c.nodes for c in taken) <= cell.nodes
        assert sum(c.slots for c in taken) >= slots
