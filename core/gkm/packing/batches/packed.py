"""Runs planned one after another, each on what those before it left: real plans, in orders that the bound suggests."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic

from gkm.packing.batches.instance import Instance, Remaining
from gkm.packing.batches.relaxation import Relaxation
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


_MORE = 2
"""Orders that are planned though no order has more GPUs: a few more may have fewer domains."""


def best_order(relaxed: Relaxation, packer: Packer, suggested: frozenset[int], goal: Sequence[int]) -> Packed:
    """Return the best of a few orders, in the time that there is. `goal` are GPUs by level that no order exceeds.

    Raises:
        TooLargeError: a run is too large to be planned: which one.
    """
    first, *others = _orders(relaxed, packer, suggested)
    found = packer.pack_fully(first)
    for number, order in enumerate(others):
        if number < _MORE or found.gpus != tuple(goal):
            tried = packer.pack(order)
            if tried is not None and tried.worth > found.worth:
                found = tried
    return found


def _orders(relaxed: Relaxation, packer: Packer, suggested: frozenset[int]) -> Iterator[list[int]]:
    """Yield orders of all runs that fit alone. Names decide between equals: the runs are in their order.

    Large groups come before small ones, which fit in what is left of domains. Before both come groups that go badly
    with others, as 3 among 1, 2, 4 and 8: then domains that they fill without rest are still free.
    """
    fitting = [run for runs in relaxed.levels for run in runs]
    units, gpus, asked = {}, {}, dict[int, int]()
    for run in fitting:
        one, request = relaxed.demands[run], packer.instance.runs[run].request
        units[run] = max((item.pods for item in (*one.items, *one.step_items)), default=1) * request.pod_gpus
        gpus[run] = one.most
        asked[units[run]] = asked.get(units[run], 0) + one.most
    chain = _chain(asked)
    priority = {run: -level for level, runs in enumerate(reversed(relaxed.levels)) for run in runs}
    if suggested:
        yield sorted(fitting, key=lambda run: (run not in suggested, -units[run], -gpus[run]))
        yield sorted(fitting, key=lambda run: (run not in suggested, units[run] in chain, -units[run], -gpus[run]))
    yield sorted(fitting, key=lambda run: (priority[run], -units[run], -gpus[run]))
    yield sorted(fitting, key=lambda run: (priority[run], units[run] in chain, -units[run], -gpus[run]))
    yield sorted(fitting, key=lambda run: (priority[run], -gpus[run], -units[run]))
    yield sorted(fitting, key=lambda run: (-units[run], -gpus[run]))


def _chain(asked: dict[int, int]) -> frozenset[int]:
    """Return the sizes of most GPUs of which each divides the next."""
    best: dict[int, tuple[int, frozenset[int]]] = {}
    for size in sorted(asked):
        below = [best[smaller] for smaller in best if size % smaller == 0]
        gpus, chain = max(below, key=lambda item: item[0], default=(0, frozenset[int]()))
        best[size] = gpus + asked[size], chain | {size}
    return max(best.values(), key=lambda item: item[0], default=(0, frozenset[int]()))[1]
