"""What a domain can take where several scopes pay: the mixtures of groups that its nodes allow (calculus.md, Scopes).

Nodes that several scopes take serve any of them. Groups fit if, whatever scopes are looked at, all that these ask for
is not more than the slots of all nodes that one of them takes (Hall's theorem; pods are alike, so it is enough).
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from gkm.packing.domains.costs import Costs
from gkm.packing.domains.cover import TooLargeError
from gkm.packing.domains.options import WHOLE, Option, Shape, steps

MAX_MIXTURES = 20_000

Scopes = frozenset[int]
Slots = Mapping[Scopes, int]
"""Slots of a domain by the scopes that take them."""


def mixtures(
    slots: Slots, gpus: int, shape: Shape, costs: Costs, scopes: int, *, leave: bool, most: int
) -> list[Option]:
    """Return what a domain can take of `scopes` scopes, at most `most` groups of each; empty where no group fits.

    Raises:
        TooLargeError: the mixtures are too many; or spares must leave and nodes are in several scopes, in which case
            what a domain takes does not say what it leaves to the spares of others.
    """
    base = costs.domain + gpus * costs.gpu
    found: list[Option] = []
    for short in (WHOLE, *range(scopes)) if shape.missing else (WHOLE,):
        if all(len(kind) == 1 for kind, offered in slots.items() if offered):
            some = _apart(slots, shape, scopes, short, leave=leave)
        elif leave:
            raise TooLargeError(
                "some spares must leave their domain, and nodes are in several of the run's scopes: this is not "
                "planned exactly; ask for fewer spares or for scopes that do not overlap"
            )
        else:
            some = ((groups, 0) for groups in _most(slots, shape, scopes, short, most))
        found += [
            Option(groups, short, base + leaving * costs.spare)
            for groups, leaving in some
            if any(groups) and (short == WHOLE or groups[short])
        ]
        if len(found) > MAX_MIXTURES:
            raise TooLargeError(
                f"a domain can take more than {MAX_MIXTURES} mixtures of the scopes' groups: name fewer"
            )
    return found


def fits(slots: Slots, groups: Sequence[int], unit: int, missing: int, short: int) -> bool:
    """Return whether groups of `unit` pods fit, of which that of the scope `short` has `missing` pods less."""
    asked = {scope: count * unit - (missing if scope == short else 0) for scope, count in enumerate(groups) if count}
    for some in subsets(sorted(asked)):
        if sum(asked[scope] for scope in some) > sum(offered for kind, offered in slots.items() if kind & some):
            return False
    return True


def subsets(scopes: Sequence[int]) -> Iterator[Scopes]:
    """Yield every choice of at least one scope."""
    for chosen in range(1, 1 << len(scopes)):
        yield frozenset(scope for number, scope in enumerate(scopes) if chosen >> number & 1)


def _apart(
    slots: Slots, shape: Shape, scopes: int, short: int, *, leave: bool
) -> Iterator[tuple[tuple[int, ...], int]]:
    """Combine what each scope can take of its own nodes; yield (groups, groups whose spares leave)."""
    each = []
    for scope in range(scopes):
        found = steps(slots.get(frozenset({scope}), 0), shape, short=scope == short, leave=leave)
        # None of a scope is a choice of its own only if taking some of it makes spares leave.
        each.append(found if found and not found[0][1] else [(0, 0), *found])
    for combined in product(*each):
        yield tuple(groups for groups, _ in combined), sum(leaving for _, leaving in combined)


def _most(slots: Slots, shape: Shape, scopes: int, short: int, most: int) -> Iterator[tuple[int, ...]]:
    """Yield the mixtures to which no group can be added."""
    unit = shape.pods + shape.spares

    def room(groups: tuple[int, ...]) -> bool:
        return max(groups) <= most and fits(slots, groups, unit, shape.missing, short)

    tried = 0
    wave = [tuple(int(scope == short) for scope in range(scopes))]
    seen = set(wave)
    while wave:
        groups = wave.pop()
        if not room(groups):
            continue
        tried += 1
        if tried > MAX_MIXTURES:
            raise TooLargeError(
                f"a domain can take more than {MAX_MIXTURES} mixtures of the scopes' groups: name fewer"
            )
        more = [(*groups[:scope], groups[scope] + 1, *groups[scope + 1 :]) for scope in range(scopes)]
        fitting = [larger for larger in more if room(larger)]
        if not fitting:
            yield groups
        wave += [larger for larger in fitting if larger not in seen]
        seen.update(fitting)
