"""Slots of one domain as pods and spares take them one after another, quick also where nodes are a hundred thousand."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

Shares = list[tuple[int, int]]
"""Which nodes a group takes pods of, by number, and how many."""


class Seat(NamedTuple):
    """A node with free slots for pods of this run. `rest` are free GPUs that make no slot."""

    name: str
    slots: int
    rest: int


class Wanted(NamedTuple):
    """A group of a domain: its pods, and those of its spares that stay."""

    pods: int
    spares: int


class Seated(NamedTuple):
    """Where a group is: pods by node, in the order in which they were given, and the node of each spare."""

    pods: tuple[tuple[str, int], ...]
    spares: tuple[str, ...]


class Slots:
    """The slots that are left of each seat, by its number.

    Seats only ever get fewer slots, so each is filed once under each number of slots: one that has fewer by now is
    passed over when it comes up.
    """

    def __init__(self, seats: Sequence[Seat], left: list[int]) -> None:
        self.seats = seats
        self.left = left
        self._filed: dict[int, list[int]] = {}
        for at, slots in enumerate(left):
            if slots:
                self._filed.setdefault(slots, []).append(at)
        self._sizes = sorted(self._filed)
        self._tight: dict[int, list[tuple[int, str, int]]] = {}

    def tightness(self, at: int) -> tuple[int, int, str]:
        """Return what makes a seat come before others where a part of it is taken."""
        return self.left[at], self.seats[at].rest, self.seats[at].name

    def take(self, at: int, pods: int) -> None:
        """Take slots of a seat."""
        left = self.left[at] - pods
        self.left[at] = left
        if left:
            if left not in self._filed:
                self._filed[left] = []
                insort(self._sizes, left)
            heappush(self._filed[left], at)
            if left in self._tight:
                heappush(self._tight[left], (self.seats[at].rest, self.seats[at].name, at))

    def largest(self, most: int) -> int | None:
        """Return the seat with the most slots left, but no more than `most`; the first of equals."""
        for index in range(bisect_right(self._sizes, most) - 1, -1, -1):
            size = self._sizes[index]
            filed = self._filed[size]
            while filed and self.left[filed[0]] != size:
                heappop(filed)
            if filed:
                return filed[0]
        return None

    def tightest(self, least: int) -> int:
        """Return the seat with the fewest slots left, but `least`; there must be one."""
        for index in range(bisect_left(self._sizes, least), len(self._sizes)):
            size = self._sizes[index]
            if size not in self._tight:
                filed = [(self.seats[at].rest, self.seats[at].name, at) for at in self._filed[size]]
                heapify(filed)
                self._tight[size] = filed
            tight = self._tight[size]
            while tight and self.left[tight[0][-1]] != size:
                heappop(tight)
            if tight:
                return tight[0][-1]
        raise AssertionError("there are slots enough")


def filled(slots: Slots, pods: int) -> Shares:
    """Fill nodes, the largest that the rest of the group fills first; then where the fewest slots are left over."""
    shares: Shares = []
    while pods:
        at = slots.largest(pods)
        if at is None:
            at = slots.tightest(pods + 1)
        taken = min(pods, slots.left[at])
        slots.take(at, taken)
        shares.append((at, taken))
        pods -= taken
    return shares


def match_spares(slots: Slots, spares: Sequence[int], own: Sequence[set[int]]) -> list[list[int]]:
    """Match spares to slots, as many as possible on nodes that their group is not on, the tightest nodes first.

    `spares` are how many each group has, `own` the nodes that it is on.
    """
    placed: list[list[int]] = [[] for _ in spares]
    if not any(spares):
        return placed
    wanted = [number for number, count in enumerate(spares) for _ in range(count)]
    free = [(*slots.tightness(at), at) for at, left in enumerate(slots.left) if left]
    heapify(free)
    matching = _Matching(slots, free, own, placed)
    # A list and not a generator: every spare is matched before the first that found no other node takes what is left.
    for number in [number for number in wanted if not matching.match(number)]:
        at = matching.tightest(set())
        if at is None:
            raise AssertionError("there are slots enough")
        matching.place(number, at)
    return placed


class _Matching(NamedTuple):
    """Spares that have a slot, and the slots that are free, the tightest first. What is outdated is passed over."""

    slots: Slots
    free: list[tuple[int, int, str, int]]
    own: Sequence[set[int]]
    placed: list[list[int]]

    def tightest(self, beside: set[int]) -> int | None:
        """Return the tightest node that is none of some; None if there is none."""
        passed = []
        found = None
        while self.free and found is None:
            left, *_, at = self.free[0]
            if left == self.slots.left[at] and at not in beside:
                found = at
            elif left == self.slots.left[at]:
                passed.append(heappop(self.free))
            else:
                heappop(self.free)
        for entry in passed:
            heappush(self.free, entry)
        return found

    def place(self, number: int, at: int) -> None:
        """Give a group a slot for one spare."""
        self.slots.take(at, 1)
        self.placed[number].append(at)
        if self.slots.left[at]:
            heappush(self.free, (*self.slots.tightness(at), at))

    def match(self, number: int) -> bool:
        """Give one more spare of a group a node, moving spares of other groups if that is what it takes."""
        came: dict[int, tuple[int, int]] = {}
        seen = {number}
        wave = [number]
        for group in wave:
            at = self.tightest(self.own[group])
            if at is not None:
                self.place(group, at)
                giver = group
                while giver != number:
                    mover, given = came[giver]
                    self.placed[giver].remove(given)
                    self.placed[mover].append(given)
                    giver = mover
                return True
            for other, seats in enumerate(self.placed):
                if other not in seen:
                    freed = next((at for at in seats if at not in self.own[group]), None)
                    if freed is not None:
                        seen.add(other)
                        came[other] = (group, freed)
                        wave.append(other)
        return False
