"""bench/coldstart runs where the tests run. How long anything takes is no matter of tests."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.fakes import cuda_library
from support.peers import require
from support.triton import installation as triton

pytestmark = pytest.mark.mounts

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "bench" / "coldstart_kernels.py"
FIGURES = [f"{moment}_{what}" for moment in ("first", "all", "call") for what in ("empty_s", "mounted_s", "ratio")]


def on_a_machine(cache: Path, what: str, **variables: str) -> subprocess.CompletedProcess[str]:
    with require.absences():
        interpreter = triton.python()
    return subprocess.run(
        [interpreter, "-I", PROGRAM, what],
        env={**os.environ, **variables, "TRITON_CACHE_DIR": str(cache), "TRITON_DEFAULT_FP_FUSION": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_report_has_both_ways_and_says_how_the_kernels_ran(tmp_path: Path) -> None:
    require.root()
    machine = on_a_machine(tmp_path, "machine")
    device = json.loads(machine.stdout)["device"]
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / "run.py", "coldstart"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests"), "RUNS": "1", "COLDSTART_TARGETS": "cuda:90:32"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "build" / "bench" / "coldstart.json").read_text())
    target = "gpu" if device else "cuda_90_32"
    assert set(found["figures"]) == {"launched", "publish_mounted_s", *(f"{target}_{name}" for name in FIGURES)}
    assert found["figures"]["launched"] == bool(device)
    assert len(found["rows"]) == 1
    assert (f"launched on {device}" if device else "nothing launched") in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines() if line.startswith(target)] == [target] * 3


def test_a_cuda_driver_whose_gpu_computes_nothing_is_found_out_after_a_launch(tmp_path: Path) -> None:
    """The driver is a stand-in. What leads to a launch is real: the driver module, the kernel, memory, arguments."""
    require.gcc()
    variables = cuda_library.environment(tmp_path)
    assert json.loads(on_a_machine(tmp_path, "machine", **variables).stdout) == {"device": "stand-in without a GPU"}
    done = on_a_machine(tmp_path / "cache", "launch", **variables)
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1] == "RuntimeError: matmul computed 2.0 instead of 256"
    names = {path.name.partition(".")[0] for path in (tmp_path / "cache").glob("*/*")}
    assert {"cuda_utils", "matmul"} <= names
