"""The measured drivers, each a process on a node of plain files: gkm-csi, and one that does nothing.

As on a real node, /run is a tmpfs and everything else on the disk. The mount namespace is the bench's, so what a killed
driver leaves goes with the bench.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from csi_calls import Caller, Volume
from gkm.mounts import syscalls
from process_cost import cpu_seconds, memory_mib
from support.csi.nodes import NODE, NodeFiles, node_files
from support.host.processes import Process
from support.peers import build as peers

_TARGETS = 64
_numbers = count()


@dataclass(frozen=True)
class Driver:
    """A ready driver, and the seconds until it was ready."""

    process: Process
    caller: Caller
    ready_s: float

    def rss_mib(self) -> float:
        return memory_mib(self.process.pid, "VmRSS")

    def cpu_s(self) -> float:
        """Return its CPU seconds: other load on the machine affects them less than wall time."""
        return cpu_seconds(self.process.pid)

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


@dataclass(frozen=True)
class Node:
    """The files of a node, gkm-csi that serves it, and the driver that does nothing beside it."""

    files: NodeFiles
    ours: Driver
    noop: Driver

    def volumes(self, number: int, attributes: dict[str, str]) -> list[Volume]:
        """Return volumes with ids of their own; their targets repeat, so they never exist all at once."""
        targets = [self.files.target(f"again-{slot}") for slot in range(min(number, _TARGETS))]
        return [Volume.of(f"csi-{next(_numbers)}", targets[turn % _TARGETS], attributes) for turn in range(number)]

    def standing(self, attributes: dict[str, str]) -> Volume:
        """Return a volume with a target of its own."""
        name = f"csi-{next(_numbers)}"
        return Volume.of(name, self.files.target(name), attributes)


@contextmanager
def node(kernels: int, names: Sequence[int] = ()) -> Iterator[Node]:
    """Start both drivers on a new node, with a cache of so many kernels, and one for each of `names`."""
    with node_files() as files, ExitStack() as stack:
        syscalls.mount("tmpfs", str(files.layout.run), "tmpfs", 0, "")
        stack.callback(syscalls.umount2, str(files.layout.run), syscalls.MNT_DETACH)
        files.layout.make_directories()
        files.ready("llama", {"kernel/one.cubin": "x" * 1000})
        files.ready("many", _kernels(kernels))
        for number in names:
            files.ready(f"names-{number}", _kernels(number))
        where: list[str | Path] = [
            "--state",
            files.layout.state,
            "--run",
            files.layout.run,
            "--kubelet",
            files.kubelet,
            "--node",
            NODE,
        ]
        command = [sys.executable, "-m", "gkm_csi.main", *where, "--driver-version-file", files.driver_file]
        socket = files.kubelet / "plugins" / "csi.gkm.io" / "csi.sock"
        ours = _started("gkm-csi", command, socket, stack.callback)
        noop = files.root / "noop.sock"
        yield Node(files, ours, _started("noopcsi", [peers.binary("noopcsi"), "-endpoint", noop], noop, stack.callback))


def _started(
    name: str, command: list[str | Path], socket: Path, later: Callable[[Callable[[], None]], object]
) -> Driver:
    log = next(parent for parent in socket.parents if parent.is_dir()) / f"{name}.log"
    began = time.monotonic()
    process = Process.start(name, command, log)
    later(process.stop)
    while not socket.exists() and process.popen.poll() is None:
        time.sleep(0.002)
    caller = Caller(socket)
    later(caller.close)
    process.ready(caller.answers, "Probe is answered")
    return Driver(process, caller, time.monotonic() - began)


def _kernels(number: int) -> dict[str, str]:
    """Return the files of a Triton cache: each kernel has a group file that names the paths it was built at."""
    content: dict[str, str] = {}
    for name in (f"{kernel:052X}" for kernel in range(number)):
        paths = {f"k.{kind}": f"/build/{name}/k.{kind}" for kind in ("json", "cubin")}
        content |= {f"{name}/{file}": f"{file} of {name}" for file in paths}
        content[f"{name}/__grp__k.json"] = json.dumps({"child_paths": paths})
    return content
