"""The agent with 200 caches in a real API server: its requests to the server, and the figures of the bench `agent`.

Control plane alone, with the rights that deploy/base gives and a token bound to the Node. There is no controller: what
it would say of the images, the bench says. Starts are from exec until the node objects say that all is Ready; for a
warm one, these are deleted before. Requests are counted until SETTLE_SECONDS after that: what a start sets off is its
own. `steady` is a window of IDLE_SECONDS: everything written again (every 5 to 10 minutes) mostly falls outside of it.
"""

import os
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import agent_process
import api_audit
import api_cluster
from agent_process import CACHES, LONGEST_SECONDS, REPOSITORY
from api_caches import NodeObjects, Wanted, declare, delete
from api_cluster import NAMESPACES, AgentCluster
from figures import Result
from gkm.kube import client
from gkm.kube.client import HttpApi
from support.cluster.audit import Request
from support.fakes import nvml_library
from support.host.processes import Process
from support.registry.server import Registry

RUNS = int(os.environ.get("RUNS", "3"))
CHANGED = 10
IDLE_SECONDS = 60.0
SETTLE_SECONDS = 5.0


@dataclass
class Run:
    """One run: a machine below `root` and a control plane of its own, both empty at first."""

    number: int
    root: Path
    variables: dict[str, str]
    place: AgentCluster
    api: HttpApi
    nodes: NodeObjects
    stack: ExitStack
    counted: int = 0
    row: dict[str, float] = field(default_factory=dict)

    def start(self, name: str, caches: list[Wanted]) -> Process:
        """Start an agent and wait until all caches are Ready."""
        self.requests()
        began = time.monotonic()
        process = agent_process.start(self.root, self.variables, "--kubeconfig", self.place.account)
        self.stack.callback(process.stop)
        self.row[f"{name}_start_s"] = agent_process.until_ready(process, began, lambda: self.nodes.are_ready(caches))
        self.count(name, self.row[f"{name}_start_s"])
        return process

    def change(self, process: Process, old: list[Wanted], new: list[Wanted], left: list[Wanted]) -> None:
        """Delete some caches and create others."""
        self.requests()
        began = time.monotonic()
        delete(self.api, old)
        declare(self.api, new)
        process.ready(lambda: self.nodes.are_ready(left), "the node objects speak of the change", LONGEST_SECONDS)
        self.row["changed_s"] = time.monotonic() - began
        self.count("changed", self.row["changed_s"])

    def idle(self, process: Process) -> None:
        """Leave the agent idle."""
        self.requests()
        self.row |= agent_process.idle(process.pid, IDLE_SECONDS)
        requests = self.requests()
        self.row["steady_api_writes_per_minute"] = 60 * api_audit.writes(requests) / IDLE_SECONDS
        self.row["steady_api_requests_per_minute"] = 60 * len(requests) / IDLE_SECONDS
        self.say(f"idle, {self.row['idle_cpu_percent']:.2f} % of a core: {api_audit.as_text(requests)}")

    def count(self, name: str, seconds: float) -> None:
        """Count the requests since `requests`, and those that follow."""
        time.sleep(SETTLE_SECONDS)
        requests = self.requests()
        self.row[f"{name}_api_writes"] = api_audit.writes(requests)
        self.row[f"{name}_api_requests"] = len(requests)
        self.say(f"{name} after {seconds:.2f} s: {api_audit.as_text(requests)}")

    def requests(self) -> list[Request]:
        """Return the agent's requests since the last call."""
        found = self.place.audit.requests()
        new, self.counted = found[self.counted :], len(found)
        return new

    def say(self, what: str) -> None:
        sys.stderr.write(f"agent_api: run {self.number} of {RUNS}: {what}\n")


def run() -> Result:
    """Measure; every run begins with an empty disk and an empty cluster."""
    with tempfile.TemporaryDirectory(prefix="gkm-bench-") as directory, Registry.start() as registry:
        library = nvml_library.build(Path(directory))
        digests = agent_process.put_images(registry, CACHES + CHANGED)
        images = [f"{registry.host}/{REPOSITORY}@{digest}" for digest in digests]
        every = [Wanted(NAMESPACES[n % len(NAMESPACES)], f"cache-{n}", image) for n, image in enumerate(images)]
        return Result.of([_once(number, library, registry.host, every) for number in range(1, RUNS + 1)])


def _once(number: int, library: Path, host: str, every: list[Wanted]) -> dict[str, float]:
    caches, new = every[:CACHES], every[CACHES:]
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gkm-bench-", ignore_cleanup_errors=True)))
        place = stack.enter_context(api_cluster.start(root / "cluster", {"kubernetes.io/hostname": "bench"}))
        api = client.connect(str(place.cluster.kubeconfig))
        nodes = NodeObjects(api)
        nodes.start()
        stack.callback(nodes.close)
        variables = nvml_library.environment(root, library=library, gpus=(nvml_library.H100,))
        agent_process.configure(root, host)
        measured = Run(number, root, variables, place, api, nodes, stack)
        declare(api, caches)
        measured.say(f"{len(caches)} caches are declared")
        agent = measured.start("cold", caches)
        measured.row["cold_peak_rss_mib"] = agent_process.peak_rss_mib(agent.pid)
        agent.stop()
        nodes.remove()
        place.cluster.until(nodes.are_deleted, "the node objects are gone")
        agent = measured.start("warm", caches)
        measured.idle(agent)
        measured.row["node_object_bytes"] = nodes.largest_bytes()
        measured.change(agent, caches[:CHANGED], new, every[CHANGED:])
        agent.stop()
        return measured.row
