"""The controllers as a process: started as they are deployed, two if wished.

/readyz answers whether a replica has listed everything, and the Lease names the leader.
"""

import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass

from fleet_place import SYSTEM, FleetCluster
from gkm.kube.client import HttpApi
from gkm.kube.leases import LEASES
from support.host import listening, pages
from support.host.processes import Process
from support.operator.deployment import MAIN

LONGEST_SECONDS = 300.0
LEASE = "gkm-controllers"
LOOK_SECONDS = 0.2
"""Between two looks at /readyz: the process that answers is the one that is measured."""


@dataclass(frozen=True)
class Controllers:
    """One replica of the controllers. `began` is when it was started (monotonic seconds)."""

    name: str
    process: Process
    began: float
    api: HttpApi

    @classmethod
    def start(cls, place: FleetCluster, name: str, stack: ExitStack) -> "Controllers":
        """Start one and wait until it is synced; the stack ends it."""
        words = (
            f"--config={place.directory / 'config.yaml'}",
            "--health=127.0.0.1:0",
            f"--kubeconfig={place.account}",
            f"--identity={name}",
        )
        log = place.directory / f"controllers-{name}-{time.monotonic_ns()}.log"
        began = time.monotonic()
        process = Process.start("gkm-operator controllers", [sys.executable, *MAIN, "controllers", *words], log)
        stack.callback(process.stop)
        health = listening.address(process)
        process.ready(lambda: pages.is_ready(health), "it is synced", LONGEST_SECONDS, every=LOOK_SECONDS)
        return cls(name, process, began, place.api)

    @property
    def pid(self) -> int:
        """Return its pid."""
        return self.process.pid

    @property
    def leads(self) -> bool:
        """Return whether the Lease names it."""
        return self.api.get(LEASES, LEASE, SYSTEM).spec.holder_identity == self.name
