"""The machine of the kill test: a registry, the real CSI process, and agents that are forked to be killed."""

import ctypes
import faulthandler
import json
import logging
import os
import random
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event
from typing import NoReturn

from gkm.api.config import Config, Registries, RegistryHost, Store, Verification
from gkm.gpus.values import Inventory
from gkm.hoststate import locks
from gkm.hoststate.layout import Layout
from gkm_agent import main, options
from gkm_agent.capturing.destination import RegistryDestination
from gkm_agent.pulls.images import NodeImages
from support.agent.fakes import H100, FakeGpus
from support.agent.store_images import files_of, put_image
from support.host.processes import Process
from support.host.waiting import until
from support.registry import faults as registry_faults
from support.registry.server import Registry

NAMESPACE = "ml-apps"
CACHES = ("alpha", "beta", "gamma", "delta")
IMAGES = 6
FILES, FILE_BYTES = 40, 3000
_PR_SET_PDEATHSIG = 1
_EVENTS = re.compile(r"open|os\.(rename|remove|mkdir|rmdir|chmod|link)|fcntl\.flock")

PHASES: dict[str, tuple[str, int]] = {
    "download": (r"state/blobs/", 14),
    "extract": (r"state/work/[^/]+/cache", 2 * FILES),
    "rename": (r"state/store/sha256/[0-9a-f]{64}$", 2),
    "collect": (r"state/(trash|locks/[0-9a-f]|relocated)", 40),
    "status": (r"nodes/", 4),
    "pointer": (r"state/caches/", 30),
    "notes": (r"state/\.?entries\.json", 3),
    "check": (r"state/store/sha256/[0-9a-f]{64}/cache/", 40),
    "start": (r"state/", 20),
    "anywhere": (r"", 600),
}
"""{phase: (which paths belong to it, how many steps it has about)}."""


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def forked(action: Callable[[], object]) -> int:
    """Run `action` in a child of its own, which never returns; return its pid."""
    child = os.fork()
    if child:
        return child
    status = 99
    try:
        die_with_parent()
        action()
        status = 0
    finally:
        os._exit(status)


class Killer:
    """Kills its process at the n-th step on a path that matches: before it, as the interpreter tells of it."""

    def __init__(self, root: Path, pattern: str, steps: int) -> None:
        self._root = str(root)
        self._pattern = re.compile(pattern)
        self._left = steps

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if not _EVENTS.fullmatch(event):
            return
        paths = [path for path in _paths(arguments) if path.startswith(self._root)]
        if not any(self._pattern.search(path.removeprefix(self._root).lstrip("/")) for path in paths):
            return
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def _paths(arguments: tuple[object, ...]) -> list[str]:
    """Return the paths of an audit event; what is named beneath a descriptor gets its directory in front."""
    paths = [os.fspath(one) for one in arguments if isinstance(one, str | os.PathLike)]
    directory = next((one for one in arguments[1:] if isinstance(one, int) and one > 2), None)
    if directory is not None and paths and not paths[0].startswith("/"):
        try:
            paths[0] = f"{Path(f'/proc/self/fd/{directory}').readlink()}/{paths[0]}"
        except OSError:
            return []
    return [str(path) for path in paths]


@dataclass
class Place:
    """Directories, registry and CSI process of one run."""

    root: Path
    generator: random.Random
    host: str = ""
    digests: list[str] = field(default_factory=list)
    csi: Process | None = None

    def __post_init__(self) -> None:
        self.layout = Layout(self.root / "state", self.root / "run")
        self.kubelet = self.root / "kubelet"
        self.manifests = self.root / "manifests"
        self.nodes = self.root / "nodes"
        for directory in (self.kubelet / "plugins_registry", self.manifests):
            directory.mkdir(parents=True)
        self.layout.make_directories()
        (self.root / "driver").write_text(H100.driver_version)

    @property
    def socket(self) -> Path:
        return self.kubelet / "plugins" / "csi.gkm.io" / "csi.sock"

    def start_registry(self) -> None:
        """Serve the images from a process of its own, slowly enough to be met in the middle."""
        reading, writing = os.pipe()

        def serve() -> NoReturn:
            with Registry.start() as registry:
                registry.misbehave(registry_faults.dripping("blobs/", piece=24_000, pause=0.004))
                digests = [
                    put_image(registry.store, "team/cache", files_of(f"image-{number}", FILES, FILE_BYTES))
                    for number in range(IMAGES)
                ]
                os.write(writing, json.dumps([registry.host, digests]).encode() + b"\n")
                while True:
                    signal.pause()

        forked(serve)
        with os.fdopen(reading, "rb") as pipe:
            self.host, self.digests = json.loads(pipe.readline())
        os.close(writing)

    def start_csi(self) -> None:
        """Start the real CSI process, after killing the one that runs."""
        if self.csi is not None:
            self.csi.kill()
        places: list[str | Path] = ["--state", self.layout.state, "--run", self.layout.run, "--kubelet", self.kubelet]
        words: list[str | Path] = [
            "-m",
            "gkm_csi.main",
            "--node",
            "node-1",
            "--driver-version-file",
            self.root / "driver",
            "--capture-min-free-percent=0",
            *places,
        ]
        self.csi = Process.start("gkm-csi", [sys.executable, *words], self.root / "csi.log")

    def want(self) -> dict[str, str]:
        """Want other caches than before; return {cache: digest}."""
        names = [name for name in CACHES if name == "alpha" or self.generator.random() < 0.8]
        wanted = {name: self.generator.choice(self.digests) for name in names}
        # One of them is not here yet, so that there is something to fetch and, later, something to let go.
        missing = [digest for digest in self.digests if not self.layout.entry(digest).exists()]
        if missing:
            wanted["alpha"] = self.generator.choice(missing)
        objects = [
            {
                "apiVersion": "gkm.io/v1alpha1",
                "kind": "GKMCache",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"image": f"{self.host}/team/cache@{digest}"},
            }
            for name, digest in wanted.items()
        ]
        new = self.manifests / "new"
        new.write_text("\n---\n".join(json.dumps(one) for one in objects))
        new.rename(self.manifests / "all.yaml")
        return wanted

    def agent(self, store: Store, killer: Killer | None) -> int:
        """Fork an agent, as `gkm-agent --static` runs; return its pid."""
        places = ["--static", self.manifests, "--state", self.layout.state, "--run", self.layout.run]
        chosen = options.parse([str(word) for word in (*places, "--status", self.nodes, "--node", "node-1")], {})
        config = Config(
            verification=Verification(mode="off"),
            registries=Registries(hosts={self.host: RegistryHost(plain_http=True)}),
            store=store,
        )

        def work() -> None:
            logging.disable()
            faulthandler.register(signal.SIGUSR1, (self.root / "stacks").open("w"))
            with locks.exclusive(self.layout.state / "locks" / "agent"):
                if killer is not None:
                    sys.addaudithook(killer)
                outside = main.Dependencies(
                    partial(NodeImages.of, config, self.layout),
                    FakeGpus(Inventory((H100,))),
                    partial(RegistryDestination, config, environment=os.environ),
                )
                main.work(chosen, config, outside, Event(), Event())

        return forked(work)

    def stacks(self, agent: int) -> str:
        """Return where each thread of an agent is."""
        os.kill(agent, signal.SIGUSR1)
        found = self.root / "stacks"
        # The main thread, which waits for signals, comes last.
        until(lambda: "gkm_agent/main.py" in found.read_text(encoding="utf-8"), "the agent to tell", 10.0)
        return found.read_text(encoding="utf-8")


def ended(pid: int, seconds: float) -> bool:
    """Wait so long at most for a child to die; return whether it did."""
    try:
        until(lambda: os.waitpid(pid, os.WNOHANG)[0], "it to die", seconds, every=0.002)
    except TimeoutError:
        return False
    return True


def kill(pid: int) -> None:
    """Kill a child and collect it."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
