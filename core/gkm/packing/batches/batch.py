"""A batch of runs: the most GPUs by priority, each run with a plan of its own, and what no batch can exceed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import monotonic

from gkm.packing.batches.bounds import Bounds
from gkm.packing.batches.exact import exact
from gkm.packing.batches.instance import Instance
from gkm.packing.batches.packed import Packed, Packer, best_order
from gkm.packing.batches.relaxation import Relaxation, relaxation
from gkm.packing.batches.values import Admitted, Batch, InvalidBatchError, Queued, Reached, Rejected
from gkm.packing.inventory import Inventory
from gkm.packing.values import Node, Plan, Refusal

__all__ = ("Admitted", "Batch", "InvalidBatchError", "Queued", "Reached", "Rejected", "plan_batch")


def plan_batch(
    nodes: Iterable[Node] | Inventory, queue: Sequence[Queued], inventory_version: str, *, seconds: float = 5.0
) -> Batch:
    """Return the best batch that is found: the most GPUs of the highest priority, of the next, and so on.

    The search ends by counting, so that the same batch comes out alike; `seconds` ends it only where that takes too
    long, and the batch says so.

    Raises:
        InvalidBatchError: there are too many runs, or two have one name.
        InvalidInventoryError: nodes contradict each other or themselves.
        TooLargeError: a run and its nodes are together too large to be solved exactly: which run.
    """
    start = monotonic()
    instance = Instance.of(nodes, queue)
    relaxed = relaxation(instance)
    # Half of the time proves at most, so that there is some for orders.
    bounds = Bounds(relaxed, start + seconds / 2)
    suggested, goal = bounds.suggestion()
    packer = Packer(instance, relaxed.levels, inventory_version, start + seconds * 3 / 4)
    packed = best_order(relaxed, packer, suggested, goal)
    optimum = None if packed.gpus == goal else exact(instance, relaxed, seconds / 2)
    if optimum is not None:
        bounds.improve(optimum)
        if optimum.shares and packed.gpus < optimum.reached:
            packed = max(packer.reserved(optimum.shares), packed, key=lambda one: one.worth)
    bounds.until = max(bounds.until, start + seconds)
    return _batch(instance, relaxed, packer, packed, bounds)


def _batch(instance: Instance, relaxed: Relaxation, packer: Packer, packed: Packed, bounds: Bounds) -> Batch:
    # What was left out is planned last: its refusal describes what is left in the end.
    refusals = {run: packer.add(packed, run) for run in range(len(instance.runs)) if run not in packed.plans}
    reached = _reached(instance, relaxed, packed, bounds.conditional(packed.gpus))
    objective, bound = sum(one.admitted for one in reached), sum(one.bound for one in reached)
    return Batch(
        admitted=tuple(
            Admitted(instance.runs[run].name, plan, run in packed.beside) for run, plan in packed.plans.items()
        ),
        rejected=tuple(
            Rejected(instance.runs[run].name, refusal, relaxed.demands[run].gpus > 0)
            for run, refusal in refusals.items()
            if refusal is not None
        ),
        reached=reached,
        objective=objective,
        bound=bound,
        gap=bound - objective,
        domains=packed.domains,
        cut_short=packer.cut_short or bounds.cut_short,
    )


def _reached(instance: Instance, relaxed: Relaxation, packed: Packed, bounds: Sequence[int]) -> tuple[Reached, ...]:
    asked = dict.fromkeys(relaxed.priorities, 0)
    for run in instance.runs:
        asked[run.priority] += run.request.gpus
    return tuple(
        Reached(priority, asked[priority], gpus, bound)
        for priority, gpus, bound in zip(relaxed.priorities, packed.gpus, bounds, strict=True)
    )


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The batch before and after one more run came.

    `plan` is the run's own, or `refusal` says why it has none. Of the others, by name: `displaced` are those that were
    admitted and no longer are, `gained` the reverse, and `moved` those whose groups or spares lie elsewhere.
    """

    plan: Plan | None
    refusal: Refusal | None
    displaced: tuple[str, ...]
    gained: tuple[str, ...]
    moved: tuple[str, ...]
    before: Batch
    after: Batch


def what_if(
    nodes: Iterable[Node] | Inventory,
    queue: Sequence[Queued],
    extra: Queued,
    inventory_version: str,
    *,
    before: Batch | None = None,
    seconds: float = 5.0,
) -> WhatIf:
    """Return what one more run would change; nothing is admitted by asking. `before` saves planning the queue anew.

    Raises:
        InvalidBatchError: there are too many runs, or two have one name.
        InvalidInventoryError: nodes contradict each other or themselves.
        TooLargeError: a run and its nodes are together too large to be solved exactly: which run.
    """
    inventory = nodes if isinstance(nodes, Inventory) else Inventory.from_nodes(nodes)
    if before is None:
        before = plan_batch(inventory, queue, inventory_version, seconds=seconds)
    after = plan_batch(inventory, [*queue, extra], inventory_version, seconds=seconds)
    old, new = _plans(before), _plans(after)
    refusals = {one.name: one.refusal for one in after.rejected}
    others = sorted((old.keys() | new.keys()) - {extra.name})
    return WhatIf(
        plan=new.get(extra.name),
        refusal=refusals.get(extra.name),
        displaced=tuple(name for name in others if name not in new),
        gained=tuple(name for name in others if name not in old),
        moved=tuple(name for name in others if name in old and name in new and old[name].groups != new[name].groups),
        before=before,
        after=after,
    )


def _plans(batch: Batch) -> dict[str, Plan]:
    return {one.name: one.plan for one in batch.admitted}
