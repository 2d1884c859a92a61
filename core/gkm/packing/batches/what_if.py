"""What would one more run change? The batch planned again with it, and the two side by side."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gkm.packing.batches.batch import plan_batch
from gkm.packing.batches.values import Batch, Queued
from gkm.packing.inventory import Inventory
from gkm.packing.values import Node, Plan, Refusal


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
