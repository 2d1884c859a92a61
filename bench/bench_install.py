"""What a new user waits for: `gkm --help`, the first pod of a new cluster; sizes of images; what the doctor finds."""

import os
import subprocess
import sys
import time
from pathlib import Path

import install_quickstart
from figures import Result
from image_sizes import sizes
from install_faults import doctor_found

RUNS = int(os.environ.get("RUNS", "5"))
GKM = Path(sys.executable).with_name("gkm")


def run() -> Result:
    """Measure after a warm-up; `interpreter_s` is what Python alone takes on this machine."""
    commands = {"help_s": [str(GKM), "--help"], "interpreter_s": [sys.executable, "-c", "pass"]}
    for command in commands.values():
        _seconds(command)
    help_ = Result.of([{name: _seconds(command) for name, command in commands.items()} for _ in range(RUNS)])
    first_pod = install_quickstart.run()
    figures = {**help_.figures, **first_pod.figures, **sizes(), **doctor_found()}
    return Result(figures, [*help_.rows, *first_pod.rows])


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began
