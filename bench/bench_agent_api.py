"""The agent with many caches in a real API server: its requests to the server, and the figures of the bench `agent`.

Control plane alone, with the rights that deploy/base gives and a token bound to the Node. There is no controller: what
it would say of the images, the bench says. Starts are from exec until the node objects say that all is Ready; for a
warm one, these are deleted before. Requests are counted until `settle_seconds` after that: what a start sets off is its
own. `steady` is a window of `idle_seconds`: everything written again (every 5 to 10 minutes) mostly falls outside of
it.
"""

import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import agent_process
import api_audit
import api_cluster
from agent_process import LONGEST_SECONDS, REPOSITORY
from api_caches import NodeObjects, Wanted, declare, delete
from api_cluster import NAMESPACES, AgentCluster
from figures import Result
from gkm.kube import client
from gkm.kube.client import HttpApi
from support.cluster.audit import Request
from support.fakes import nvml_library
from support.host.processes import Process
from support.registry.server import Registry


@dataclass(frozen=True)
class AgentApiSize:
    """How many runs and caches there are, how many of these change, and the seconds of the module's docstring."""

    runs: int
    caches: int
    changed: int
    settle_seconds: float
    idle_seconds: float


FULL = AgentApiSize(runs=3, caches=200, changed=10, settle_seconds=5.0, idle_seconds=60.0)
SMALLEST = AgentApiSize(runs=1, caches=2, changed=1, settle_seconds=0.2, idle_seconds=0.5)


@dataclass
class Run:
    """One run: a machine below `root` and a control plane of its own, both empty at first."""

    size: AgentApiSize
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
        seconds = self.size.idle_seconds
        self.row |= agent_process.idle(process.pid, seconds)
        requests = self.requests()
        self.row["steady_api_writes_per_minute"] = 60 * api_audit.writes(requests) / seconds
        self.row["steady_api_requests_per_minute"] = 60 * len(requests) / seconds
        self.say(f"idle, {self.row['idle_cpu_percent']:.2f} % of a core: {api_audit.as_text(requests)}")

    def count(self, name: str, seconds: float) -> None:
        """Count the requests since `requests`, and those that follow."""
        time.sleep(self.size.settle_seconds)
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
        sys.stderr.write(f"agent_api: run {self.number} of {self.size.runs}: {what}\n")


def run(size: AgentApiSize) -> Result:
    """Measure; every run begins with an empty disk and an empty cluster."""
    with Registry.start() as registry:
        library = nvml_library.build()
        digests = agent_process.put_images(registry, size.caches + size.changed)
        images = [f"{registry.host}/{REPOSITORY}@{digest}" for digest in digests]
        every = [Wanted(NAMESPACES[n % len(NAMESPACES)], f"cache-{n}", image) for n, image in enumerate(images)]
        return Result.of([_once(size, number, library, registry.host, every) for number in range(1, size.runs + 1)])


def _once(size: AgentApiSize, number: int, library: Path, host: str, every: list[Wanted]) -> dict[str, float]:
    caches, new = every[: size.caches], every[size.caches :]
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gkm-bench-", ignore_cleanup_errors=True)))
        place = stack.enter_context(api_cluster.start(root / "cluster", {"kubernetes.io/hostname": "bench"}))
        api = client.connect(str(place.cluster.kubeconfig))
        nodes = NodeObjects(api)
        nodes.start()
        stack.callback(nodes.close)
        variables = nvml_library.environment(root, library=library, gpus=(nvml_library.H100,))
        agent_process.configure(root, host)
        measured = Run(size, number, root, variables, place, api, nodes, stack)
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
        measured.change(agent, caches[: size.changed], new, every[size.changed :])
        agent.stop()
        return measured.row
