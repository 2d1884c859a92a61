"""Dealing out slots among those that want them: a maximum flow, small and the same every time."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

Want = TypeVar("Want", bound=Hashable)
Slot = TypeVar("Slot", bound=Hashable)


class Deal(Generic[Want, Slot]):
    """Slots of some kinds, dealt out one want after another.

    `order` says in which order a want takes kinds of slots, and None for a kind that it cannot take. What a want has
    been given stays given in number, though it may come to be of another kind.
    """

    def __init__(self, slots: Mapping[Slot, int], order: Callable[[Want, Slot], tuple[object, ...] | None]) -> None:
        self.free = dict(slots)
        self.given: dict[tuple[Want, Slot], int] = {}
        self._order = order
        self._kinds: dict[Want, list[Slot]] = {}

    def give(self, want: Want, count: int) -> bool:
        """Give a want so many slots. Return whether that was possible."""
        while count:
            more = self._augment(want, count)
            if not more:
                return False
            count -= more
        return True

    def settle(self) -> None:
        """Let every want have what is left of kinds that it takes before those that it has."""
        changed = True
        while changed:
            changed = False
            for (want, kind), count in sorted(self.given.items(), key=repr):
                before = self.kinds(want)
                for better in before[: before.index(kind)]:
                    moved = min(count, self.free[better], self.given[want, kind])
                    if moved:
                        self._change(want, kind, -moved)
                        self._change(want, better, moved)
                        self.free[kind] += moved
                        self.free[better] -= moved
                        changed = True

    def kinds(self, want: Want) -> list[Slot]:
        """Return the kinds of slots that a want can take, in its order."""
        if want not in self._kinds:
            ordered = [(order, kind) for kind in self.free if (order := self._order(want, kind)) is not None]
            self._kinds[want] = [kind for _, kind in sorted(ordered, key=lambda item: item[0])]
        return self._kinds[want]

    def _augment(self, want: Want, most: int) -> int:
        """Give a want some slots more, which others may have to give up for other ones. Return how many."""
        came: dict[Want, tuple[Want, Slot]] = {}
        seen = {want}
        wave = [want]
        while wave:
            at = wave.pop(0)
            for kind in self.kinds(at):
                if self.free[kind]:
                    chain = [(at, kind)]
                    while chain[-1][0] != want:
                        chain.append(came[chain[-1][0]])
                    return self._shift(chain, most)
                for other in sorted((other for other, held in self.given if held == kind), key=repr):
                    if other not in seen and self.given[other, kind]:
                        seen.add(other)
                        came[other] = (at, kind)
                        wave.append(other)
        return 0

    def _shift(self, chain: Sequence[tuple[Want, Slot]], most: int) -> int:
        """Move along a chain of (who gains, what): each but the first gains what the one before gives up."""
        losses = [(chain[number - 1][0], chain[number][1]) for number in range(1, len(chain))]
        count = min([most, self.free[chain[0][1]], *(self.given[loss] for loss in losses)])
        self.free[chain[0][1]] -= count
        for want, kind in chain:
            self._change(want, kind, count)
        for want, kind in losses:
            self._change(want, kind, -count)
        return count

    def _change(self, want: Want, kind: Slot, count: int) -> None:
        self.given[want, kind] = self.given.get((want, kind), 0) + count
