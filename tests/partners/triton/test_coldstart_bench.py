"""bench/coldstart runs where the tests run. How long anything takes is no matter of tests."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from support.benches.smallest import smallest, unusable
from support.fakes import cuda_library
from support.peers import require
from support.triton import installation as triton

pytestmark = pytest.mark.mounts

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "bench" / "coldstart_kernels.py"
SUMMARY = ("real_gpu", "first_kernel_cold_s", "first_kernel_mounted_s", "ratio")
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


@pytest.mark.timeout(600)
def test_the_report_has_both_ways_and_says_how_the_kernels_ran(tmp_path: Path) -> None:
    require.root()
    machine = on_a_machine(tmp_path, "machine")
    device = json.loads(machine.stdout)["device"]
    found, table = smallest("coldstart", tmp_path)
    targets = ["gpu"] if device else ["cuda_90_32", "cuda_100_32", "hip_gfx942_64"]
    figures = {f"{target}_{name}" for target in targets for name in FIGURES}
    assert set(found["figures"]) == {*SUMMARY, "publish_mounted_s", *figures}
    assert unusable(found["figures"], ()) == []
    assert found["figures"]["real_gpu"] == bool(device)
    assert len(found["rows"]) == 1
    assert (f"launched on {device}" if device else "nothing launched") in table
    lines = [line.split()[0] for line in table.splitlines() if line.startswith(tuple(targets))]
    assert lines == [target for target in targets for _ in range(3)]


def test_a_cuda_driver_whose_gpu_computes_nothing_is_found_out_after_a_launch(tmp_path: Path) -> None:
    """The driver is a stand-in. What leads to a launch is real: the driver module, the kernel, memory, arguments."""
    require.gcc()
    variables = cuda_library.environment()
    assert json.loads(on_a_machine(tmp_path, "machine", **variables).stdout) == {"device": "stand-in without a GPU"}
    done = on_a_machine(tmp_path / "cache", "launch", **variables)
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1] == "RuntimeError: matmul computed 2.0 instead of 256"
    names = {path.name.partition(".")[0] for path in (tmp_path / "cache").glob("*/*")}
    assert {"cuda_utils", "matmul"} <= names
