"""What a process costs, by /proc, and the controllers as a process: started as they are deployed, two if wished."""

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from fleet_place import FleetCluster
from support.host.processes import Process
from support.operator.deployment import operator_command

LONGEST_SECONDS = 300.0
_TICKS = os.sysconf("SC_CLK_TCK")
_SYNCED, _LEADS = '"event": "synced"', '"event": "leads"'


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_mib(pid: int, what: str) -> float:
    """Return VmRSS (now) or VmHWM (the most so far) of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(what)) / 1024


@dataclass(frozen=True)
class Controllers:
    """One replica of the controllers. `began` is when it was started (monotonic seconds)."""

    name: str
    process: Process
    began: float

    @classmethod
    def start(cls, place: FleetCluster, name: str, stack: ExitStack) -> "Controllers":
        """Start it and wait until it is synced; the stack ends it."""
        words = (
            f"--config={place.directory / 'config.yaml'}",
            "--health=127.0.0.1:0",
            f"--kubeconfig={place.account}",
            f"--identity={name}",
        )
        log = place.directory / f"controllers-{name}-{time.monotonic_ns()}.log"
        began = time.monotonic()
        process = Process.start("gkm-operator controllers", operator_command("controllers", *words), log)
        stack.callback(process.stop)
        process.ready(lambda: _SYNCED in log.read_text(encoding="utf-8"), "it is synced", LONGEST_SECONDS)
        return cls(name, process, began)

    @property
    def pid(self) -> int:
        """Return its pid."""
        return self.process.pid

    @property
    def has_led(self) -> bool:
        """Return whether it leads, or did."""
        return _LEADS in self.process.log.read_text(encoding="utf-8")
