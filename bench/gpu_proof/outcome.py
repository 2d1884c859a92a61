"""What a run of a program on a cache did, and what the proof demands of it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

COMPILED_SUFFIXES = (".cubin", ".hsaco", ".so", ".ttir")
"""Files that only a compiler adds. Locks and the marks of loaded libraries are none."""
MOUNTED, READ_ONLY = "mounted", "mounted read-only"


@dataclass(frozen=True)
class ProgramRun:
    """One run. `failure` is the last line of a program that ended with an error; the other fields are then empty."""

    workload: str
    way: str
    device: str = ""
    seconds: float = 0.0
    hits: int = 0
    compiled: int = 0
    added: Sequence[str] = ()
    failure: str = ""

    @classmethod
    def of(cls, workload: str, way: str, printed: Mapping[str, Any]) -> "ProgramRun":
        """Return what a program of gpu_proof.programs printed."""
        hits = ("graph_hits", "autograd_hits", "kernel_hits")
        misses = ("graph_misses", "autograd_misses", "kernels_compiled")
        return cls(
            workload,
            way,
            printed["device"],
            round(printed["seconds"], 3),
            sum(printed.get(name, 0) for name in hits),
            sum(printed.get(name, 0) for name in misses),
            tuple(printed["added"]),
        )

    @property
    def fault(self) -> str:
        """Return why the run refutes the proof, "" if it does not."""
        if self.way not in (MOUNTED, READ_ONLY):
            return f"{self.workload}, {self.way}: {self.failure}" if self.failure else ""
        where = f"{self.workload}, {self.way}"
        if self.failure:
            # Documented: a read-only cache may fail at a lock of torch; it never compiles.
            return f"{where}: {self.failure}" if self.way == MOUNTED else ""
        if self.compiled:
            return f"{where}: {self.compiled} graphs or kernels were compiled"
        built = [name for name in self.added if name.endswith(COMPILED_SUFFIXES)]
        if built:
            return f"{where}: {len(built)} compiled files were added, such as {built[0]}"
        return "" if self.hits else f"{where}: nothing was found in the cache"
