"""Lists of nodes and pods, and manifests of Runs, as files for `gkm plan`; and the command, on a terminal or not."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from support.cli.command import gkm_in_this_process
from support.host.waiting import scaled

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
FLAVOR = "H100"
READY = [{"type": "Ready", "status": "True"}]


def node(name: str, domain: str, block: str = "b1", gpus: object = 8, **spec: object) -> Json:
    labels = {"block": block, "fabric.domain": domain, "gpu.flavor": FLAVOR}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"allocatable": {GPU: str(gpus)}, "conditions": READY},
    }


def pod(name: str, on: str, gpus: int) -> Json:
    container = {"name": "main", "resources": {"limits": {GPU: str(gpus)}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"nodeName": on, "containers": [container]},
        "status": {"phase": "Running"},
    }


def run(name: str = "llama", **spec: object) -> Json:
    return {
        "apiVersion": "gkm.io/v1alpha1",
        "kind": "Run",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"flavor": FLAVOR, "gpus": 32, "groupGPUs": 16} | spec,
    }


def listed(*items: Json) -> Json:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


def run_plan(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `gkm plan` in this process, because importing numpy for each of many tests takes long."""
    return gkm_in_this_process("plan", *arguments)


class PlanWorkspace:
    """A directory with two racks of four nodes in each of two blocks, 32 GPUs a rack, unless a test changes it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.nodes = self.write("nodes.json", listed(*racks()))
        self.run = self.write("run.json", run())

    def write(self, name: str, value: object) -> Path:
        """Write a file: text unchanged, any other value as JSON (which is YAML, too)."""
        path = self.directory / name
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return path

    def plan(self, *arguments: object, nodes: Path | None = None, run: Path | None = None) -> Any:  # noqa: ANN401 -- JSON
        """Return exit code and JSON of `gkm plan -o json`."""
        done = self.run_plan(*arguments, "-o", "json", nodes=nodes, run=run)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def run_plan(
        self, *arguments: object, nodes: Path | None = None, run: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return run_plan("--nodes", nodes or self.nodes, "--run", run or self.run, *arguments)


def racks(count: int = 4, nodes: int = 4, gpus: int = 8) -> Iterable[Json]:
    """Yield the nodes of racks, two of them in a block."""
    for rack in range(count):
        for number in range(nodes):
            yield node(f"gpu-{rack}-{number}", f"rack{rack}", f"b{rack // 2}", gpus)


def shuffled(items: Iterable[Json], seed: int) -> list[Json]:
    found = list(items)
    random.Random(seed).shuffle(found)
    return found


def on_a_terminal(*arguments: object, columns: int = 100) -> str:
    """Return what the command prints on a terminal of `columns` columns."""
    command = [sys.executable, "-m", "gkm_cli.main", "plan", *map(str, arguments)]
    main, terminal = os.openpty()
    environment = os.environ | {"COLUMNS": str(columns), "TERM": "xterm-256color"}
    try:
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=terminal, stderr=subprocess.DEVNULL, env=environment
        ) as process:
            os.close(terminal)
            found = b""
            try:
                while piece := os.read(main, 1 << 16):
                    found += piece
            except OSError:  # Linux says EIO when the other end is closed.
                pass
            process.wait(timeout=scaled(60))
    finally:
        os.close(main)
    return found.decode()
