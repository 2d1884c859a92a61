"""What a new user waits for: `gkm --help`, the first pod of a new cluster; sizes of images; what the doctor finds."""

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import install_quickstart
from figures import Result
from image_sizes import sizes
from install_faults import doctor_found
from support.cli.seeded_faults import FAULTS

GKM = Path(sys.executable).with_name("gkm")


@dataclass(frozen=True)
class InstallSize:
    """How many runs of the commands there are; of the quickstart, and how many of these warm up; and planted faults."""

    commands: int
    quickstarts: int
    warm_ups: int
    faults: int


FULL = InstallSize(commands=5, quickstarts=3, warm_ups=1, faults=len(FAULTS))
SMALLEST = InstallSize(commands=1, quickstarts=1, warm_ups=0, faults=2)


def run(size: InstallSize) -> Result:
    """Measure after a warm-up; `interpreter_s` is what Python alone takes on this machine."""
    commands = {"help_s": [str(GKM), "--help"], "interpreter_s": [sys.executable, "-c", "pass"]}
    for command in commands.values():
        _seconds(command)
    help_ = Result.of([{name: _seconds(command) for name, command in commands.items()} for _ in range(size.commands)])
    first_pod = install_quickstart.measured(size.quickstarts, size.warm_ups)
    figures = {**help_.figures, **first_pod.figures, **sizes(), **doctor_found(size.faults)}
    return Result(figures, [*help_.rows, *first_pod.rows])


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began
