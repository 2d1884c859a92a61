"""The agent with many caches: all of them fetched, all of them on disk at a start, and nothing to do.

Without Kubernetes, over the real registry double, as a process of its own; its GPUs are the NVML library for tests.
Starts are from exec to the node object that reports all of them as Ready.
"""

import os
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import agent_process
import yaml
from agent_process import NODE, REPOSITORY
from figures import Result
from support.fakes import nvml_library
from support.host.processes import Process
from support.registry.server import Registry


@dataclass(frozen=True)
class AgentSize:
    """How many runs and caches there are; seconds until the agent has finished what a start causes, and of idleness."""

    runs: int
    caches: int
    settle_seconds: float
    idle_seconds: float


FULL = AgentSize(runs=5, caches=200, settle_seconds=2.0, idle_seconds=30.0)
SMALLEST = AgentSize(runs=1, caches=2, settle_seconds=0.1, idle_seconds=0.5)


@dataclass(frozen=True)
class Machine:
    """A machine without Kubernetes below `root`, whose agent has so many caches."""

    root: Path
    variables: dict[str, str]
    caches: int

    def start(self) -> Process:
        return agent_process.start(self.root, self.variables, "--static", self.root / "manifests")

    @property
    def said(self) -> Path:
        return self.root / "nodes" / "bench" / f"{NODE}.yaml"

    def all_ready(self) -> bool:
        """Return whether the node object reports all caches as Ready; as text, because parsing YAML takes longer."""
        try:
            return self.said.read_text().count("state: Ready") == self.caches
        except FileNotFoundError:
            return False


def run(size: AgentSize) -> Result:
    """Measure; every run begins with an empty disk."""
    with Registry.start() as registry:
        library = nvml_library.build()
        digests = agent_process.put_images(registry, size.caches)
        return Result.of([_once(size, library, registry.host, digests) for _ in range(size.runs)])


def _once(size: AgentSize, library: Path, host: str, digests: list[str]) -> dict[str, float]:
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gkm-bench-", ignore_cleanup_errors=True)))
        variables = nvml_library.environment(root, library=library, gpus=(nvml_library.H100,))
        machine = Machine(root, variables, size.caches)
        _declare(root, host, digests)
        cold = _started(machine, stack)[1]
        warm, seconds = _started(machine, stack)
        time.sleep(size.settle_seconds)  # what follows a start is not idle
        idle = _idle(machine, warm.pid, size.idle_seconds)
        warm.stop()
        return {"cold_start_s": cold, "warm_start_s": seconds, **idle}


def _started(machine: Machine, stack: ExitStack) -> tuple[Process, float]:
    """Start an agent; return it, and the seconds until all caches are Ready. Stop it after a cold start."""
    cold = not machine.said.exists()
    machine.said.unlink(missing_ok=True)
    began = time.monotonic()
    process = machine.start()
    stack.callback(process.stop)
    took = agent_process.until_ready(process, began, machine.all_ready)
    if cold:
        process.stop()
    return process, took


def _idle(machine: Machine, pid: int, seconds: float) -> dict[str, float]:
    files, writes = _files(machine.root), _written(pid)
    found = agent_process.idle(pid, seconds)
    changed = sum(1 for path, stamp in _files(machine.root).items() if files.get(path) != stamp)
    return {
        **found,
        "files_changed_per_minute": 60 * changed / seconds,
        "bytes_written_per_minute": 60 * (_written(pid) - writes) / seconds,
    }


def _declare(root: Path, host: str, digests: list[str]) -> None:
    agent_process.configure(root, host)
    (root / "manifests").mkdir()
    for number, digest in enumerate(digests):
        cache = {
            "apiVersion": "gkm.io/v1alpha1",
            "kind": "GKMCache",
            "metadata": {"name": f"cache-{number}", "namespace": "bench"},
            "spec": {"image": f"{host}/{REPOSITORY}@{digest}"},
        }
        (root / "manifests" / f"{number}.yaml").write_text(yaml.safe_dump(cache))


def _files(root: Path) -> dict[str, tuple[int, int]]:
    """Return inode and time of the files that the agent may write; files in the store's entries do not change."""
    found = {}
    for directory, names, files in os.walk(root):
        if directory.endswith("store"):
            names.clear()
        for path in (Path(directory) / name for name in files if name != "agent.log"):
            status = path.stat()
            found[str(path)] = (status.st_ino, status.st_mtime_ns)
    return found


def _written(pid: int) -> int:
    lines = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(lines["write_bytes"])
