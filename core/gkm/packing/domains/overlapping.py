"""The tree knapsack where spares must leave and nodes are in several scopes: small problems only (calculus.md, Scopes).

What a domain takes then decides what it leaves to the spares of others, scope by scope. By Hall's theorem the spares
that leave find slots if and only if, for all choices L of scopes, the spares that leave in L and what every domain asks
for beyond the slots outside L are no more than the slots. That is a sum over domains, one for each L; so a state of
these tables is groups by scope and those sums. States are few in small problems, and kept as they come up.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

from gkm.packing.domains.costs import Costs
from gkm.packing.domains.cover import Cell, TooLargeError
from gkm.packing.domains.mixtures import MAX_MIXTURES, Scopes, Slots, subsets
from gkm.packing.domains.options import WHOLE, Option, Shape

MAX_STATES = 1_000_000
"""States that are gone through, all domains together."""
MAX_STEPS = 1_000_000
"""Ways from one state to another that are tried, all domains together: a second or two."""

MAX_TRIED = 50_000
"""What one domain could take, of which much is more than it holds: some tenths of a second."""
_TOO_LARGE = (
    "some spares must leave their domain, and nodes are in several of the run's scopes: this run is too large to be "
    "planned exactly so; ask for fewer spares or for scopes that do not overlap"
)


class Costed(dict[Cell, int]):
    """Least costs of the states that came up. A state is a row as in `cover`, groups by scope, and a sum for each L."""

    def __missing__(self, cell: Cell) -> float:
        """Return the cost of what nothing does."""
        return float("inf")


@dataclass(slots=True, eq=False)
class States:
    """Least costs as in `cover.Tables`, with exactly so many groups in a state instead of at least so many."""

    options: Sequence[Sequence[Option]]
    blocks: Sequence[range]
    costs: Costs
    groups: int
    unused: list[Costed] = field(default_factory=list)
    paid: list[Costed] = field(default_factory=list)
    passed: int = 0
    steps: int = 0

    def within(self, block: int) -> list[Costed]:
        """Return costs from each domain of a block on, and from none of them on, with the block paid for."""
        domains = self.blocks[block]
        rows = [Costed({cell: cost + self.costs.block for cell, cost in self.unused[block + 1].items()})]
        for domain in reversed(domains):
            rows.append(self._taken(rows[-1], self.options[domain]))
        return rows[::-1]

    def _taken(self, before: Costed, options: Sequence[Option]) -> Costed:
        self.steps += len(before) * len(options)
        if self.steps > MAX_STEPS:
            raise TooLargeError(_TOO_LARGE)
        after = Costed(before)
        for cell, cost in before.items():
            for option in options:
                state = _with(cell, option)
                if state is not None and sum(state[1 : 1 + len(option.groups)]) <= self.groups:
                    after[state] = min(after[state], cost + option.cost)
        self.passed += len(after)
        if self.passed > MAX_STATES:
            raise TooLargeError(_TOO_LARGE)
        return after


def states(
    options: Sequence[Sequence[Option]], blocks: Sequence[range], costs: Costs, groups: int, start: Cell
) -> States:
    """Return the least costs of all states that can come up. `start` is that of nothing.

    Raises:
        TooLargeError: there are too many states.
    """
    found = States(options, blocks, costs, groups, [Costed() for _ in blocks], [Costed() for _ in blocks])
    found.unused.append(Costed({start: 0}))
    for number in reversed(range(len(blocks))):
        found.paid[number] = found.within(number)[0]
        merged = Costed(found.unused[number + 1])
        for cell, cost in found.paid[number].items():
            merged[cell] = min(merged[cell], cost)
        found.unused[number] = merged
    return found


def _with(cell: Cell, option: Option) -> Cell | None:
    if option.short != WHOLE and cell[0]:
        return None
    row = cell[0] if option.short == WHOLE else 1 + option.short
    return (row, *(one + other for one, other in zip(cell[1:], (*option.groups, *option.needs), strict=True)))


def overlapping_options(slots: Slots, gpus: int, shape: Shape, costs: Costs, *, scopes: int, most: int) -> list[Option]:
    """Return everything that a domain can take: groups by scope, and how many of each have spares that may leave.

    Raises:
        TooLargeError: there is too much to choose from.
    """
    base = costs.domain + gpus * costs.gpu
    choices = list(subsets(range(scopes)))
    room = {some: sum(offered for kind, offered in slots.items() if kind & some) for some in choices}
    found: list[Option] = []
    tried = 0
    highest = [min(most, (room[frozenset({scope})] + shape.missing) // shape.pods) for scope in range(scopes)]
    for groups in product(*(range(count + 1) for count in highest)):
        if not any(groups) or sum(groups) > most:
            continue
        for short in (WHOLE, *range(scopes)) if shape.missing else (WHOLE,):
            if short != WHOLE and not groups[short]:
                continue
            tried += prod(count + 1 for count in groups)
            if tried > MAX_TRIED:
                raise TooLargeError(_TOO_LARGE)
            for away in product(*(range(count + 1) for count in groups)):
                asked = [
                    count * shape.pods + (count - leaving) * shape.spares - (shape.missing if scope == short else 0)
                    for scope, (count, leaving) in enumerate(zip(groups, away, strict=True))
                ]
                if all(sum(asked[scope] for scope in some) <= room[some] for some in choices):
                    needs = tuple(_needs(asked, away, room, shape.spares, choices))
                    found.append(Option(groups, short, base + sum(away) * costs.spare, needs, away))
        if len(found) > MAX_MIXTURES:
            raise TooLargeError(
                f"a domain can take more than {MAX_MIXTURES} mixtures of the scopes' groups: name fewer"
            )
    return found


def _needs(
    asked: Sequence[int], away: Sequence[int], room: dict[Scopes, int], spares: int, choices: Sequence[Scopes]
) -> Iterator[int]:
    for leaving in choices:
        beyond = max(
            sum(asked[scope] for scope in some) - room[leaving | some] for some in (frozenset[int](), *choices)
        )
        yield beyond + room[leaving] + spares * sum(away[scope] for scope in leaving)
