"""Which nodes of a domain the pods of its groups and their spares take (calculus.md, Inside a domain).

Whole nodes first: a group takes nodes that it fills, the largest first; what remains of it goes where the fewest slots
are left over. Names decide between equals. Spares go to nodes that their group is not on, wherever there is a way: the
groups are laid out in each of a few manners, spares are matched to the nodes left, and the first manner with the fewest
spares beside their own group is taken.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Seat(NamedTuple):
    """A node with free slots for pods of this run. `rest` are free GPUs that make no slot."""

    name: str
    slots: int
    rest: int


class Wanted(NamedTuple):
    """A group of a domain: its pods, and those of its spares that stay."""

    pods: int
    spares: int


@dataclass(frozen=True, slots=True)
class Seated:
    """Where a group is: pods by node, in the order in which they were given, and the node of each spare."""

    pods: tuple[tuple[str, int], ...]
    spares: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where all groups of a domain are, the slots that are left, and how many spares share a node with their group."""

    groups: tuple[Seated, ...]
    left: dict[str, int]
    shared: int


_Manner = Callable[[dict[Seat, int], int, int], list[tuple[Seat, int]]]


def lay_out(seats: Sequence[Seat], groups: Sequence[Wanted]) -> Layout:
    """Return where the groups go. The seats must have slots enough for them and their spares."""
    ordered = sorted((seat for seat in seats if seat.slots > 0), key=lambda seat: (-seat.slots, seat.rest, seat.name))
    best: Layout | None = None
    for manner in (_filling, _together, _around_spares):
        layout = _laid_out(ordered, groups, manner)
        if best is None or layout.shared < best.shared:
            best = layout
        if not best.shared:
            break
    if best is None:
        raise AssertionError("there is always a manner")
    return best


def _laid_out(ordered: Sequence[Seat], groups: Sequence[Wanted], manner: _Manner) -> Layout:
    left = {seat: seat.slots for seat in ordered}
    taken: list[list[tuple[Seat, int]]] = []
    for group in groups:
        shares = manner(left, group.pods, group.spares)
        for seat, pods in shares:
            left[seat] -= pods
        taken.append(shares)
    spares = _spares(left, groups, taken)
    shared = 0
    for shares, seats in zip(taken, spares, strict=True):
        own = {seat for seat, _ in shares}
        shared += sum(seat in own for seat in seats)
        for seat in seats:
            left[seat] -= 1
    seated = tuple(
        Seated(tuple((seat.name, pods) for seat, pods in shares), tuple(seat.name for seat in seats))
        for shares, seats in zip(taken, spares, strict=True)
    )
    return Layout(seated, {seat.name: slots for seat, slots in left.items()}, shared)


def _filling(left: dict[Seat, int], pods: int, _: int) -> list[tuple[Seat, int]]:
    """Fill nodes, the largest that the rest of the group fills first; then where the fewest slots are left over."""
    shares: list[tuple[Seat, int]] = []
    used: set[Seat] = set()
    # Seats are in the order of what they had at first; what they have now differs only where groups met.
    for seat, slots in sorted(left.items(), key=lambda item: -item[1]):
        if pods and 0 < slots <= pods:
            shares.append((seat, slots))
            used.add(seat)
            pods -= slots
    if pods:
        seat = min((seat for seat, slots in left.items() if slots > pods and seat not in used), key=_tightness(left))
        shares.append((seat, pods))
    return shares


def _together(left: dict[Seat, int], pods: int, _: int) -> list[tuple[Seat, int]]:
    """As `_filling`, but a group goes to one node where one has room for all that is left of it, the tightest."""
    shares: list[tuple[Seat, int]] = []
    free = dict(left)
    while pods:
        roomy = [seat for seat, slots in free.items() if slots >= pods]
        if roomy:
            shares.append((min(roomy, key=_tightness(free)), pods))
            break
        seat = max(free, key=lambda seat: free[seat])
        shares.append((seat, free[seat]))
        pods -= free.pop(seat)
    return shares


def _around_spares(left: dict[Seat, int], pods: int, spares: int) -> list[tuple[Seat, int]]:
    """Fill the nodes of which the fewest pods take enough, so that the others have room for the group's spares."""
    free = sum(left.values())
    chosen = _subset(left, pods, free - spares)
    if chosen is None:
        return _filling(left, pods, spares)
    return _filling({seat: left[seat] for seat in left if seat in chosen}, pods, spares)


def _subset(left: dict[Seat, int], least: int, most: int) -> set[Seat] | None:
    """Return nodes that have `least` to `most` slots together, as few slots as can be; None if no nodes have."""
    sums: dict[int, tuple[Seat, ...]] = {0: ()}
    for seat, slots in left.items():
        if slots:
            for total, seats in list(sums.items()):
                if total + slots <= most:
                    sums.setdefault(total + slots, (*seats, seat))
    enough = [total for total in sums if total >= least]
    return set(sums[min(enough)]) if enough else None


def _tightness(left: dict[Seat, int]) -> Callable[[Seat], tuple[int, int, str]]:
    return lambda seat: (left[seat], seat.rest, seat.name)


def _spares(
    left: dict[Seat, int], groups: Sequence[Wanted], taken: Sequence[Sequence[tuple[Seat, int]]]
) -> list[list[Seat]]:
    """Match spares to slots, as many as possible on nodes that their group is not on, the tightest nodes first."""
    placed: list[list[Seat]] = [[] for _ in groups]
    if not any(group.spares for group in groups):
        return placed
    free = Counter({seat: slots for seat, slots in left.items() if slots})
    own = [{seat for seat, _ in shares} for shares in taken]
    wanted = [number for number, group in enumerate(groups) for _ in range(group.spares)]
    # A list and not a generator: every spare is matched before the first that found no other node takes what is left.
    for number in [number for number in wanted if not _match(number, free, own, placed)]:
        seat = min((seat for seat in free if free[seat]), key=_tightness(free))
        free[seat] -= 1
        placed[number].append(seat)
    return placed


def _match(number: int, free: Counter[Seat], own: Sequence[set[Seat]], placed: Sequence[list[Seat]]) -> bool:
    """Give one more spare of a group a node, moving spares of other groups if that is what it takes."""
    came: dict[int, tuple[int, Seat]] = {}
    seen = {number}
    wave = [number]
    while wave:
        group = wave.pop(0)
        open_seats = [seat for seat, slots in free.items() if slots and seat not in own[group]]
        if open_seats:
            seat = min(open_seats, key=_tightness(free))
            free[seat] -= 1
            placed[group].append(seat)
            while group != number:
                mover, given = came[group]
                placed[group].remove(given)
                placed[mover].append(given)
                group = mover
            return True
        for other, seats in enumerate(placed):
            freed = next((seat for seat in seats if seat not in own[group]), None)
            if other not in seen and freed is not None:
                seen.add(other)
                came[other] = (group, freed)
                wave.append(other)
    return False
