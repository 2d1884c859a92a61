"""Batches of 64 runs on busy inventories of 10,000 and 100,000 GPUs: seconds, and how far from the proven bound.

PYTHONPATH=tests python bench/packing_batches.py [seed ...]
"""

import sys
import time
from collections.abc import Mapping

from gkm.packing.batches.batch import Batch, plan_batch
from gkm.packing.inventory import Inventory
from support.packing.batches_cases import queue
from support.packing.inventories import SHAPES, inventory

RUNS, SECONDS, MOST_GAP = 64, 5.0, 0.01

Row = Mapping[str, str | int | float | bool]


def measured(seed: int) -> list[Row]:
    """Return a row for each inventory, with and without priorities."""
    return [_row(name, seed, priorities=priorities) for name in SHAPES for priorities in (False, True)]


def _row(name: str, seed: int, *, priorities: bool) -> Row:
    nodes = inventory(name, seed)
    runs = queue(name, nodes, seed, runs=RUNS, priorities=priorities)
    start, used = time.perf_counter(), time.process_time()
    batch = plan_batch(Inventory.from_nodes(nodes), runs, "bench", seconds=SECONDS)
    seconds, used = time.perf_counter() - start, time.process_time() - used
    return {
        "inventory": name,
        "seed": seed,
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


def main() -> None:
    rows = [row for seed in map(int, sys.argv[1:] or ["1"]) for row in measured(seed)]
    print(" | ".join(rows[0]))
    for row in rows:
        print(" | ".join(str(value) for value in row.values()))
    missed = [row for row in rows if float(row["gap"]) > MOST_GAP or float(row["seconds"]) > SECONDS]
    print(f"{len(missed)} of {len(rows)} beyond {MOST_GAP:.0%} or {SECONDS:.0f} s")
    if missed:
        sys.exit(1)


if __name__ == "__main__":
    main()
