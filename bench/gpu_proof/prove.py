"""`make gpu`: what GKM's caches do on the GPU of this machine; writes build/gpu/report.json and report.md.

Exits with 1 when a mounted cache compiles anything, when `gkm node detect` and nvidia-smi differ, or when a program
sees an image for another GPU or a damaged one. Without a GPU it is a rehearsal, and the report says so.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from pathlib import Path

import msgspec
from gkm.gpus.values import Inventory
from gpu_proof.detection import QUERY, compare
from gpu_proof.machine import ProofMachine, this_machine
from gpu_proof.refusals import refusals
from gpu_proof.report import ProofReport
from gpu_proof.workloads import ProofSite, workloads
from support.registry.server import Registry

OUTPUT = Path("build/gpu")
READ = (
    "import msgspec, sys; from gkm.gpus.inventory import InventoryReader; "
    "sys.stdout.buffer.write(msgspec.json.encode(InventoryReader().read()))"
)


def main() -> int:
    """Run the proof and return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default=sys.executable, help="the Python that has torch and Triton")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gkm-gpu-") as directory, Registry.start() as registry:
        try:
            machine = this_machine(options.python, Path(directory))
            report = prove(ProofSite(machine, registry, Path(directory)))
        except RuntimeError as error:
            sys.stderr.write(f"gpu: {error}\n")
            return 1
    OUTPUT.mkdir(parents=True, exist_ok=True)
    (OUTPUT / "report.json").write_text(json.dumps(report.document(), indent=1) + "\n", encoding="utf-8")
    (OUTPUT / "report.md").write_text(report.markdown(), encoding="utf-8")
    sys.stdout.write(report.markdown())
    return int(bool(report.faults))


def prove(site: ProofSite) -> ProofReport:
    """Return everything that was found.

    Raises:
        RuntimeError: a command of the proof itself failed.
    """
    machine = site.machine
    detected, inventory = _detected(machine)
    if not inventory.gpus:
        raise RuntimeError(f"gkm finds no GPU: {'; '.join(inventory.errors) or 'NVML lists none'}")
    report = ProofReport(machine.is_rehearsal, _description(machine, inventory))
    report.fields = compare(detected, inventory, machine.nvidia_smi(*QUERY))
    if machine.gkm("keygen", "--output-key-prefix", site.work / "cosign").returncode:
        raise RuntimeError("gkm keygen failed")
    for number, workload in enumerate(workloads(machine)):
        for run in site.runs(workload, number):
            sys.stderr.write(f"gpu: {run.workload}, {run.way}: {run.failure or f'{run.compiled} compiled'}\n")
            report.runs.append(run)
    report.refusals += refusals(site, inventory.gpus[0].arch)
    return report


def _detected(machine: ProofMachine) -> tuple[dict[str, list[dict[str, object]]], Inventory]:
    printed = machine.gkm("node", "detect", "-o", "json")
    reading = machine.run(sys.executable, "-c", READ)
    if printed.returncode or reading.returncode:
        raise RuntimeError(f"gkm node detect failed: {(printed.stderr or reading.stderr).strip()[-300:]}")
    return json.loads(printed.stdout), msgspec.json.decode(reading.stdout, type=Inventory)


def _description(machine: ProofMachine, inventory: Inventory) -> dict[str, object]:
    gpu = inventory.gpus[0]
    return {
        "GPUs": f"{len(inventory.gpus)} of {gpu.model}",
        "driver": gpu.driver_version,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "Python": platform.python_version(),
        "Triton": machine.version(machine.triton_python, "triton"),
        "torch": machine.version(machine.torch_python, "torch"),
    }


if __name__ == "__main__":
    sys.exit(main())
