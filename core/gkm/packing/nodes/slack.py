"""How many slots a scope may take so that the demands of all others still fit, where scopes share nodes.

By Hall's theorem demands fit if and only if every choice of scopes asks for no more slots than the nodes have that at
least one of them takes. What is left of each choice is its slack; a slot that one scope takes costs slack of the
choices without that scope.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gkm.packing.inventory import Integers

Scopes = frozenset[int]
UNLIMITED = 1 << 62


class Slack:
    """The slack of every choice of the scopes that demand slots, as one array: choices are numbers, a bit per scope."""

    def __init__(self, slots: Mapping[Scopes, int], demand: Mapping[int, int]) -> None:
        self.bits = {scope: 1 << number for number, scope in enumerate(sorted(demand))}
        self._choices = np.arange(1 << len(self.bits))
        self.left: Integers = np.zeros(len(self._choices), dtype=np.int64)
        for kind, count in slots.items():
            self.left += self._with(kind) * count
        for scope, count in demand.items():
            self.left -= self._with({scope}) * count

    def allowed(self, scope: int, kind: Scopes) -> int:
        """Return how many slots of nodes of a kind a scope may take of what it demands."""
        if len(self.bits) == 1:
            return UNLIMITED
        harmed = self._with(kind) & ~self._with({scope})
        return int(self.left[harmed].min(initial=UNLIMITED))

    def take(self, scope: int, kind: Scopes, count: int) -> None:
        """Give a scope slots that it demands."""
        if len(self.bits) > 1:
            self.left += count * (self._with({scope}).astype(np.int64) - self._with(kind))

    def reach(self) -> Integers:
        """Return how many slots more each choice of scopes could take: the least slack of the choices around it."""
        found = self.left.copy()
        for bit in self.bits.values():
            without = self._choices[self._choices & bit == 0]
            found[without] = np.minimum(found[without], found[without | bit])
        return found

    def _with(self, scopes: Scopes | set[int]) -> NDArray[np.bool_]:
        """Return which choices have at least one of some scopes."""
        bits = sum(self.bits.get(scope, 0) for scope in scopes)
        found: NDArray[np.bool_] = (self._choices & bits) != 0
        return found
