"""Which nodes of a domain the pods of its groups and their spares take (calculus.md, Inside a domain).

Whole nodes first: a group takes nodes that it fills, the largest first; what remains of it goes where the fewest slots
are left over. Names decide between equals. Spares go to nodes that their group is not on, wherever there is a way: the
groups are laid out in each of a few manners, spares are matched to the nodes left, and the first manner with the fewest
spares beside their own group is taken.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gkm.packing.nodes.seating import Seat, Seated, Shares, Slots, Wanted, filled, match_spares

__all__ = ("Layout", "Seat", "Seated", "Wanted", "lay_out")

MAX_SUMS = 2_000_000
"""Sums of slots that are tried for nodes that leave enough to the spares of a group: a second, and seldom needed."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where all groups of a domain are, the slots that are left, and how many spares share a node with their group."""

    groups: tuple[Seated, ...]
    left: dict[str, int]
    shared: int


_Manner = Callable[[Slots, int, int], Shares]


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
    slots = Slots(ordered, [seat.slots for seat in ordered])
    taken = [manner(slots, group.pods, group.spares) for group in groups]
    spares = match_spares(slots, [group.spares for group in groups], [{at for at, _ in shares} for shares in taken])
    shared = 0
    for shares, places in zip(taken, spares, strict=True):
        if places:
            own = {at for at, _ in shares}
            shared += sum(at in own for at in places)
    seated = tuple(
        [
            Seated(tuple([(ordered[at].name, pods) for at, pods in shares]), tuple([ordered[at].name for at in places]))
            for shares, places in zip(taken, spares, strict=True)
        ]
    )
    return Layout(seated, {seat.name: left for seat, left in zip(ordered, slots.left, strict=True)}, shared)


def _filling(slots: Slots, pods: int, _: int) -> Shares:
    return filled(slots, pods)


def _together(slots: Slots, pods: int, _: int) -> Shares:
    """As `_filling`, but a group goes to one node where one has room for all that is left of it, the tightest."""
    shares: Shares = []
    free = dict(enumerate(slots.left))
    while pods:
        roomy = [at for at, left in free.items() if left >= pods]
        if roomy:
            shares.append((min(roomy, key=slots.tightness), pods))
            break
        at = max(free, key=lambda at: free[at])
        shares.append((at, free[at]))
        pods -= free.pop(at)
    for at, taken in shares:
        slots.take(at, taken)
    return shares


def _around_spares(slots: Slots, pods: int, spares: int) -> Shares:
    """Fill the nodes of which the fewest pods take enough, so that the others have room for the group's spares."""
    chosen = _subset(slots.left, pods, sum(slots.left) - spares)
    if chosen is None:
        return filled(slots, pods)
    few = Slots(slots.seats, [left if at in chosen else 0 for at, left in enumerate(slots.left)])
    shares = filled(few, pods)
    for at, taken in shares:
        slots.take(at, taken)
    return shares


def _subset(left: Sequence[int], least: int, most: int) -> set[int] | None:
    """Return nodes that have `least` to `most` slots together, as few slots as can be; None if no nodes are found."""
    if most * len(left) > MAX_SUMS:
        return None
    sums: dict[int, tuple[int, ...]] = {0: ()}
    for at, slots in enumerate(left):
        if slots:
            for total, seats in list(sums.items()):
                if total + slots <= most:
                    sums.setdefault(total + slots, (*seats, at))
    enough = [total for total in sums if total >= least]
    return set(sums[min(enough)]) if enough else None
