"""The planner and its peers: cost and time of plans, on the inventories of the tests.

In this order: the cases side by side; p50 and p99 of one run; from lists to a plan; a stream of runs.
With PARTS (comma-separated: cases, times, snapshot, stream) only some; GKM_CPSAT_PYTHON names a Python with
OR-Tools (packing_solvers). It ends with an error if any peer does better, any plan is not valid, any gap is left, or
p99, the snapshot or its memory are above what the planner promises for the full size.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Protocol

import packing_side_by_side
import packing_snapshot
import packing_stream
import packing_times
from packing_report import Report, Table
from packing_side_by_side import CasesSize
from packing_snapshot import SnapshotSize
from packing_stream import StreamSize
from packing_times import TimesSize
from support.packing.inventories import RUNS, Run


class Part(Protocol):
    """The result of a part of the bench."""

    failures: list[str]

    def tables(self) -> Sequence[Table]: ...

    def figures(self) -> Mapping[str, float]: ...


@dataclass(frozen=True)
class PackingSize:
    """The load of each part, and what it must not exceed."""

    cases: CasesSize
    times: TimesSize
    snapshot: SnapshotSize
    stream: StreamSize

    def parts(self) -> Mapping[str, Callable[[], Part]]:
        """Return the parts by name, in their order."""
        return {
            "cases": partial(packing_side_by_side.measured, self.cases),
            "times": partial(packing_times.measured, self.times),
            "snapshot": partial(packing_snapshot.measured, self.snapshot),
            "stream": partial(packing_stream.measured, self.stream),
        }


FULL = PackingSize(
    cases=CasesSize(runs=RUNS, times=5, solver_seconds=10.0),
    times=TimesSize(runs=tuple(run for run in RUNS if run.inventory.endswith("_100k")), samples=100, slow_ms=100.0),
    snapshot=SnapshotSize("nvl72_100k", groups=1024, runs=5, warm_ups=1, slow_ms=1000.0, large_mib=300.0),
    stream=StreamSize(loads=(0.80, 0.80, 0.80, 0.95), count=5000),
)
_CASE = Run("h100_10k", 8, 64)
SMALLEST = PackingSize(
    cases=CasesSize(runs=(_CASE,), times=1, solver_seconds=1.0),
    times=TimesSize(runs=(_CASE,), samples=1, slow_ms=inf),
    snapshot=SnapshotSize("nvl72_10k", groups=8, runs=1, warm_ups=0, slow_ms=inf, large_mib=inf),
    stream=StreamSize(loads=(0.80, 0.95), count=50),
)
PARTS = os.environ.get("PARTS", "cases,times,snapshot,stream").split(",")


def run(size: PackingSize) -> Report:
    """Measure."""
    tables: list[Table] = []
    figures: dict[str, float] = {}
    failures: list[str] = []
    for name, measured in size.parts().items():
        if name in PARTS:
            sys.stderr.write(f"packing: {name}\n")
            part = measured()
            tables += part.tables()
            figures |= part.figures()
            failures += part.failures
    return Report(figures, tables, failures)
