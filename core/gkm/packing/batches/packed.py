"""Runs planned one after another, each on what those before it left: real plans, whatever the order says."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from time import monotonic

from gkm.packing.batches.ground import Ground, Left
from gkm.packing.domains.cover import TooLargeError
from gkm.packing.plan import plan
from gkm.packing.values import Plan, Refusal

MAX_STEPS = 5_000_000
"""A step is a node that is looked at for a plan. At 100,000 GPUs that is a few orders of 64 runs; small ones, hundreds.

The number of steps depends on the batch alone, so that the answer does not depend on how fast this machine is.
"""
_PLAN_STEPS = 6_000
"""What a plan costs besides."""


@dataclass(slots=True)
class Packed:
    """The plans of an order, by run, in the order in which they were made, and what they left of the ground.

    `order` has the runs that were tried, and `marks` what was left before each of them.
    """

    left: Left
    levels: Sequence[Sequence[int]]
    plans: dict[int, Plan] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    marks: list[Left] = field(default_factory=list)

    @property
    def gpus(self) -> tuple[int, ...]:
        """Return the GPUs of each level, spares not counted."""
        return tuple(sum(self.plans[run].gpus for run in runs if run in self.plans) for runs in self.levels)

    @property
    def domains(self) -> int:
        """Return the domains of all plans, added."""
        return sum(one.metrics.domains for one in self.plans.values())

    @property
    def worth(self) -> tuple[tuple[int, ...], int]:
        """Return what is compared: GPUs by priority, the highest first; then fewer domains."""
        return self.gpus, -self.domains


@dataclass(slots=True)
class Packer:
    """Plans orders until its steps, or in the worst case its seconds, are used up."""

    ground: Ground
    levels: Sequence[Sequence[int]]
    inventory_version: str
    until: float
    steps: int = 0
    cut_short: bool = False

    @property
    def goes_on(self) -> bool:
        """Return whether there is time for one more plan."""
        if self.steps > MAX_STEPS:
            return False
        self.cut_short = self.cut_short or monotonic() > self.until
        return not self.cut_short

    def empty(self) -> Packed:
        """Return a batch without runs, to which they are added."""
        return Packed(Left(self.ground), self.levels)

    def whole(self, order: Sequence[int]) -> Packed:
        """Return the plans of an order, however long it takes.

        Raises:
            TooLargeError: a run is too large to be solved exactly: which one.
        """
        packed = self.empty()
        for run in order:
            self.add(packed, run)
        return packed

    def pack(self, order: Sequence[int], like: Packed) -> Packed | None:
        """Return the plans of an order; None where there is no time for all. It goes on from where `like` differs.

        Raises:
            TooLargeError: a run is too large to be solved exactly: which one.
        """
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(order, like.order, strict=False)))
        packed = self.empty() if not same else _until(like, same)
        for run in order[same:]:
            if not self.goes_on:
                return None
            self.add(packed, run)
        return packed

    def add(self, packed: Packed, run: int) -> Refusal | None:
        """Plan one more run on what is left; where it does not fit nothing changes, and the refusal is returned.

        Raises:
            TooLargeError: the run is too large to be solved exactly: which one.
        """
        packed.order.append(run)
        packed.marks.append(packed.left.copy())
        queued, inventory = self.ground.runs[run], packed.left.of_run(run)
        self.steps += _PLAN_STEPS + len(inventory.nodes)
        try:
            answer = plan(inventory, queued.request, self.inventory_version)
        except TooLargeError as error:
            raise TooLargeError(f"run {queued.name!r}: {error}") from error
        if isinstance(answer, Refusal):
            return answer
        packed.plans[run] = answer
        packed.left.take(answer)
        return None


def _until(like: Packed, count: int) -> Packed:
    """Return what the first runs of an order came to."""
    left = (like.marks[count] if count < len(like.marks) else like.left).copy()
    order = like.order[:count]
    plans = {run: like.plans[run] for run in order if run in like.plans}
    return Packed(left, like.levels, plans, order, like.marks[:count])
