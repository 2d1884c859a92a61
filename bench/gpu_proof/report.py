"""The report of a proof, for programs and for people. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gpu_proof.detection import FieldComparison
from gpu_proof.outcome import ProgramRun
from gpu_proof.refusals import ImageRefusal

REHEARSAL = (
    "There was no GPU. This is a rehearsal: NVML is a fake that describes an H100, Triton compiled for sm_90 and "
    "launched nothing, and torch compiled for the processor. It shows that the proof runs and what it counts; it shows "
    "nothing about a GPU."
)


@dataclass
class ProofReport:
    """Everything that a proof found."""

    is_rehearsal: bool
    machine: dict[str, object]
    fields: Sequence[FieldComparison] = ()
    runs: list[ProgramRun] = field(default_factory=list)
    refusals: list[ImageRefusal] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        """Return what refutes the proof."""
        differing = [
            f"GPU {each.gpu}, {each.field}: gkm states {each.gkm!r}, nvidia-smi {each.nvidia_smi!r}"
            for each in self.fields
            if not each.agrees
        ]
        faults = [*(run.fault for run in self.runs), *(refusal.fault for refusal in self.refusals)]
        return [*differing, *filter(None, faults)]

    def document(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "rehearsal": self.is_rehearsal,
            "machine": self.machine,
            "detection": [{**asdict(each), "agrees": each.agrees} for each in self.fields],
            "runs": [asdict(each) for each in self.runs],
            "refusals": [asdict(each) for each in self.refusals],
            "faults": self.faults,
        }

    def markdown(self) -> str:
        """Return the report as a page."""
        parts = [
            "# Proof on a GPU",
            REHEARSAL if self.is_rehearsal else "",
            _table("", "value", ((name, value) for name, value in self.machine.items())),
            "## Detection",
            _table(
                "GPU, field",
                "gkm | nvidia-smi",
                ((f"{each.gpu}, {each.field}", f"{each.gkm} | {_theirs(each)}") for each in self.fields),
            ),
            "## Programs on caches",
            "Seconds are from the import of the library to the first result. Files are those that the run added.",
            _table(
                "program | cache",
                "device | seconds | hits | compiled | files added | end",
                ((f"{run.workload} | {run.way}", _run(run)) for run in self.runs),
            ),
            "## Images that no program may see",
            _table(
                "image",
                "exit code | program ran | message",
                (
                    (each.image, f"{each.exit_code} | {'yes' if each.program_ran else 'no'} | {each.message}")
                    for each in self.refusals
                ),
            ),
            "## Result",
            "\n".join(f"- {fault}" for fault in self.faults) or "No fault: no mounted cache compiled anything.",
        ]
        return "\n\n".join(filter(None, parts)) + "\n"


def _theirs(comparison: FieldComparison) -> str:
    if comparison.nvidia_smi is None:
        return "not run"
    return comparison.nvidia_smi + ("" if comparison.agrees else " **differs**")


def _run(run: ProgramRun) -> str:
    if run.failure:
        return f" | | | | | {run.failure}"
    return f"{run.device} | {run.seconds:.2f} | {run.hits} | {run.compiled} | {len(run.added)} | ok"


def _table(first: str, rest: str, rows: Iterable[tuple[object, object]]) -> str:
    columns = first.count("|") + rest.count("|") + 2
    return "\n".join([f"| {first} | {rest} |", "|---" * columns + "|", *(f"| {a} | {b} |" for a, b in rows)])
