"""The planner and its peers: cost and time of plans, on the inventories of the tests.

In this order: the cases side by side; p50 and p99 of one run; from lists to a plan; batches of runs; a stream of runs.
With PARTS (comma-separated: cases, times, snapshot, batches, stream) only some. RUNS (5) counts the runs of what takes
its median, SAMPLES (100) the calls of which p99 is taken, SOLVER_SECONDS (10) bounds the solvers for each part of the
cost, and GKM_CPSAT_PYTHON names a Python with OR-Tools (packing_solvers). It ends with an error if any peer does
better, any plan is not valid, any gap is left, or p99, the snapshot or its memory are above what the planner promises.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import packing_side_by_side
import packing_snapshot
import packing_times
from packing_report import Report, Table


class Part(Protocol):
    """The result of a part of the bench."""

    failures: list[str]

    def tables(self) -> Sequence[Table]: ...

    def figures(self) -> Mapping[str, float]: ...


OURS: Mapping[str, Callable[[], Part]] = {
    "cases": packing_side_by_side.measured,
    "times": packing_times.measured,
    "snapshot": packing_snapshot.measured,
}
SEED = 1
OTHERS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "batches": ("packing_batches", (SEED,)),
    "stream": ("packing_stream", ()),
}
"""Modules whose `measured` returns rows, and its arguments; the bench imports them on demand."""
PARTS = os.environ.get("PARTS", "cases,times,snapshot,batches,stream").split(",")


def run() -> Report:
    """Measure."""
    tables: list[Table] = []
    figures: dict[str, float] = {}
    failures: list[str] = []
    for name, measured in OURS.items():
        if name in PARTS:
            _print_progress(name)
            part = measured()
            tables += part.tables()
            figures |= part.figures()
            failures += part.failures
    for name, (module, arguments) in OTHERS.items():
        if name in PARTS and importlib.util.find_spec(module):
            _print_progress(name)
            try:
                rows = importlib.import_module(module).measured(*arguments)
            except (ImportError, AttributeError) as error:
                # What took minutes before is not lost for it.
                failures.append(f"{module} cannot be measured: {error}")
            else:
                tables.append(Table(name, rows))
    return Report(figures, tables, failures)


def _print_progress(what: str) -> None:
    sys.stderr.write(f"packing: {what}\n")
    sys.stderr.flush()
