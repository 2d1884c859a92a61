"""Batches of runs on busy inventories, with and without priorities: seconds, and how far from the proven bound."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from gkm.packing.batches.batch import Batch, plan_batch
from gkm.packing.inventory import Inventory
from packing_report import Row, Table
from support.packing.batches_cases import queue
from support.packing.inventories import inventory

SEED, MOST_GAP = 1, 0.01


@dataclass(frozen=True)
class BatchesSize:
    """The inventories, the runs of a batch, and the seconds in which it must be planned."""

    inventories: Sequence[str]
    runs: int
    seconds: float


@dataclass
class Batches:
    """A row for each inventory and kind of batch."""

    rows: list[Row] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def tables(self) -> list[Table]:
        """Return the batches."""
        return [Table("batches", self.rows)]

    def figures(self) -> dict[str, float]:
        """Return the largest gap to the bound of all batches."""
        return {"batch_gap_percent": round(100 * max(float(row["gap"]) for row in self.rows), 3)}


def measured(size: BatchesSize) -> Batches:
    """Plan each batch."""
    rows = [_row(size, name, priorities=kind) for name in size.inventories for kind in (False, True)]
    late = [
        f"batch: {row['inventory']} took {row['seconds']} s" for row in rows if float(row["seconds"]) > size.seconds
    ]
    wide = [f"batch: {row['inventory']} has a gap of {row['gap']}" for row in rows if float(row["gap"]) > MOST_GAP]
    return Batches(rows, late + wide)


def _row(size: BatchesSize, name: str, *, priorities: bool) -> Row:
    nodes = inventory(name, SEED)
    runs = queue(name, nodes, SEED, runs=size.runs, priorities=priorities)
    start, used = time.perf_counter(), time.process_time()
    batch = plan_batch(Inventory.from_nodes(nodes), runs, "bench", seconds=size.seconds)
    seconds, used = time.perf_counter() - start, time.process_time() - used
    return {
        "inventory": name,
        "priorities": len(batch.reached),
        "seconds": round(seconds, 3),
        "cpu_seconds": round(used, 3),
        "asked": sum(one.asked for one in batch.reached),
        "admitted": batch.objective,
        "bound": batch.bound,
        "gap": round(batch.gap / max(1, batch.bound), 5),
        "worst_gap": round(_worst(batch), 5),
        "domains": batch.domains,
        "cut_short": batch.cut_short,
    }


def _worst(batch: Batch) -> float:
    """Return the largest gap of a priority, relative to its bound: lower priorities do not compensate a loss."""
    return max((one.bound - one.admitted) / max(1, one.bound) for one in batch.reached)
