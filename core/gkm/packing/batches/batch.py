"""A batch of runs: the most GPUs by priority, each run with a plan of its own, and what no batch can exceed."""

from collections.abc import Iterable, Sequence
from time import monotonic

from gkm.packing.batches import highs
from gkm.packing.batches.bounds import Bounds
from gkm.packing.batches.ground import Ground
from gkm.packing.batches.orders import best
from gkm.packing.batches.packed import Packed, Packer
from gkm.packing.batches.relaxation import Relaxation, relaxation
from gkm.packing.batches.values import Admitted, Batch, InvalidBatchError, Queued, Reached, Rejected
from gkm.packing.inventory import Inventory
from gkm.packing.values import Node

__all__ = ("Admitted", "Batch", "InvalidBatchError", "Queued", "Reached", "Rejected", "plan_batch")


def plan_batch(
    nodes: Iterable[Node] | Inventory,
    queue: Sequence[Queued],
    inventory_version: str,
    *,
    seconds: float = 5.0,
    solver: bool | None = None,
) -> Batch:
    """Return the best batch that is found: the most GPUs of the highest priority, of the next, and so on.

    `solver` says whether HiGHS is used; None, that it is where it is installed. The search ends by counting, so that
    the same batch comes out alike; `seconds` ends it only where that takes too long, and the batch says so.

    Raises:
        InvalidBatchError: there are too many runs, or two have one name.
        InvalidInventoryError: nodes contradict each other or themselves.
        ModuleNotFoundError: a solver is asked for, and highspy is not installed.
        TooLargeError: a run and its nodes are together too large to be solved exactly: which run.
    """
    start = monotonic()
    with_solver = highs.installed() if solver is None else solver
    ground = Ground.of(nodes, queue)
    relaxed = relaxation(ground)
    # Half of the time proves at most, so that there is some for orders.
    bounds = Bounds(relaxed, with_solver, start + seconds / 2)
    suggested, goal = bounds.suggestion()
    packer = Packer(ground, relaxed.levels, inventory_version, start + seconds * 3 / 4)
    packed = best(relaxed, packer, suggested, goal, with_solver=with_solver)
    bounds.until = max(bounds.until, start + seconds)
    return _batch(ground, relaxed, packer, packed, bounds)


def _batch(ground: Ground, relaxed: Relaxation, packer: Packer, packed: Packed, bounds: Bounds) -> Batch:
    # What was left out is asked last: nothing was kept from it, and its refusal says what is left in the end.
    refusals = {run: packer.add(packed, run) for run in range(len(ground.runs)) if run not in packed.plans}
    reached = _reached(ground, relaxed, packed, bounds.given(packed.gpus))
    objective, bound = sum(one.admitted for one in reached), sum(one.bound for one in reached)
    return Batch(
        admitted=tuple(Admitted(ground.runs[run].name, plan) for run, plan in packed.plans.items()),
        rejected=tuple(
            Rejected(ground.runs[run].name, refusal, relaxed.demands[run].gpus > 0)
            for run, refusal in refusals.items()
            if refusal is not None
        ),
        reached=reached,
        objective=objective,
        bound=bound,
        gap=bound - objective,
        domains=packed.domains,
        solver="highs" if bounds.solver else "none",
        cut_short=packer.cut_short or bounds.cut_short,
    )


def _reached(ground: Ground, relaxed: Relaxation, packed: Packed, bounds: Sequence[int]) -> tuple[Reached, ...]:
    asked = dict.fromkeys(relaxed.priorities, 0)
    for run in ground.runs:
        asked[run.priority] += run.request.gpus
    return tuple(
        Reached(priority, asked[priority], gpus, bound)
        for priority, gpus, bound in zip(relaxed.priorities, packed.gpus, bounds, strict=True)
    )
