"""Runs planned one after another, each on what those before it left: real plans, whatever the order says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic

from gkm.packing.batches.instance import Instance, Remaining
from gkm.packing.domains.capacity import capacity
from gkm.packing.errors import TooLargeError
from gkm.packing.inventory import Inventory
from gkm.packing.plan import metrics, plan
from gkm.packing.values import Plan, Refusal, Share

MAX_STEPS = 5_000_000
"""A step is a node that is looked at for a plan. At 100,000 GPUs that is a few orders of 64 runs; small ones, hundreds.

The number of steps depends on the batch alone, so that the answer does not depend on how fast this machine is.
"""
_PLAN_STEPS = 6_000
"""What a plan costs besides."""


@dataclass(slots=True)
class Packed:
    """The plans of an order, by run, in the order in which they were made, and what they left of the instance.

    `beside` are the runs that were planned beside GPUs reserved for others.
    """

    left: Remaining
    levels: Sequence[Sequence[int]]
    plans: dict[int, Plan] = field(default_factory=dict)
    beside: set[int] = field(default_factory=set)

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

    instance: Instance
    levels: Sequence[Sequence[int]]
    inventory_version: str
    until: float
    steps: int = 0
    cut_short: bool = False

    @property
    def has_time(self) -> bool:
        """Return whether there is time for one more plan."""
        if self.steps > MAX_STEPS:
            return False
        self.cut_short = self.cut_short or monotonic() > self.until
        return not self.cut_short

    def empty(self) -> Packed:
        """Return a batch without runs, to which they are added."""
        return Packed(Remaining(self.instance), self.levels)

    def pack_fully(self, order: Sequence[int]) -> Packed:
        """Return the plans of an order, however long it takes.

        Raises:
            TooLargeError: a run is too large to be solved exactly: which one.
        """
        packed = self.empty()
        for run in order:
            self.add(packed, run)
        return packed

    def pack(self, order: Sequence[int]) -> Packed | None:
        """Return the plans of an order; None where there is no time for all.

        Raises:
            TooLargeError: a run is too large to be planned: which one.
        """
        packed = self.empty()
        for run in order:
            if not self.has_time:
                return None
            self.add(packed, run)
        return packed

    def reserved(self, shares: Mapping[int, Sequence[Share]]) -> Packed:
        """Return the plans of runs for each of which these GPUs are reserved until it is planned."""
        packed = self.empty()
        for run in sorted(shares):
            self.add(packed, run, [share for later in shares if later > run for share in shares[later]])
        return packed

    def add(self, packed: Packed, run: int, reserved: Sequence[Share] = ()) -> Refusal | None:
        """Plan one more run on what is left; where it does not fit nothing changes, and the refusal is returned.

        Raises:
            TooLargeError: the run is too large to be solved exactly: which one.
        """
        queued, inventory = self.instance.runs[run], packed.left.of_run(run)
        self.steps += _PLAN_STEPS + len(inventory.nodes)
        here = [share for share in reserved if share.node in inventory.numbers]
        try:
            answer = plan(inventory.taking(here) if here else inventory, queued.request, self.inventory_version)
        except TooLargeError as error:
            raise TooLargeError(f"run {queued.name!r}: {error}") from error
        if isinstance(answer, Refusal):
            return answer
        if here:
            packed.beside.add(run)
            answer = _measured(inventory, answer)
        packed.plans[run] = answer
        packed.left.take(answer)
        return None


def _measured(inventory: Inventory, answer: Plan) -> Plan:
    """Return a plan with its metrics on an inventory of which it was given a part."""
    used = {group.place for group in answer.groups}
    domains = [number for number, place in enumerate(inventory.places) if place in used]
    sized = replace(answer.request, gpus=answer.gpus)
    return replace(answer, metrics=metrics(capacity(inventory, answer.request), sized, domains, answer.groups))
