"""Real agents in static mode on loopback, behind the real distribution as a pull-through cache of a registry.

One part lets one agent go first, as a bounded rollout does, and then all others at once; in the other part all begin
together with an empty cache. `origin_copies` is what the registry itself sent, in copies of the image's layers.
"""

import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import agent_process
import yaml
from agent_process import NODE, REPOSITORY
from support.agent.store_images import files_of, put_image
from support.fakes import nvml_library
from support.host.processes import Process
from support.host.waiting import until
from support.registry.distribution import Distribution
from support.registry.server import Registry

FILES, FILE_BYTES = 64, 64 << 10
LONGEST_SECONDS = 1800.0


@dataclass(frozen=True)
class RolloutSite:
    """A registry with one image, and a pull-through cache before it."""

    origin: Registry
    mirror: Distribution
    digest: str

    def layers(self) -> list[tuple[str, int]]:
        """Return digest and size of every layer."""
        manifest = self.origin.store.repository(REPOSITORY).manifests[self.digest].parsed()
        return [(layer["digest"], layer["size"]) for layer in manifest["layers"]]

    def copies(self) -> float:
        """Return how often the registry itself sent the layers; every request counts as a whole one."""
        layers = self.layers()
        sent = sum(size * len(self.origin.seen("GET", f"blobs/{digest}")) for digest, size in layers)
        return sent / sum(size for _, size in layers)

    def is_stored(self) -> bool:
        """Return whether the mirror has every layer."""
        return all(self.mirror.has_blob(REPOSITORY, digest) for digest, _ in self.layers())


@dataclass(frozen=True)
class StaticAgent:
    """One agent with a disk of its own below `root`."""

    root: Path
    process: Process

    def is_ready(self) -> bool:
        """Return whether its node object reports the cache as Ready."""
        try:
            return "state: Ready" in (self.root / "nodes" / "bench" / f"{NODE}.yaml").read_text()
        except FileNotFoundError:
            return False


def measure(agents: int, cold_agents: int) -> dict[str, float]:
    """Return the figures of both parts, of so many agents each."""
    with tempfile.TemporaryDirectory(prefix="gkm-bench-") as directory:
        library = nvml_library.build()
        figures = _part(Path(directory) / "warm", library, agents, first_alone=True)
        cold = _part(Path(directory) / "cold", library, cold_agents, first_alone=False)
    return figures | {f"cold_{name}": value for name, value in cold.items()}


def _part(root: Path, library: Path, count: int, *, first_alone: bool) -> dict[str, float]:
    with ExitStack() as stack:
        origin = stack.enter_context(Registry.start())
        mirror = stack.enter_context(Distribution.start(root / "mirror", proxy=origin.url))
        site = RolloutSite(origin, mirror, put_image(origin.store, REPOSITORY, files_of("rollout", FILES, FILE_BYTES)))
        agents: list[StaticAgent] = []
        if first_alone:
            agents += _started(stack, site, root, library, range(1))
            _until_ready(agents)
            until(site.is_stored, "the mirror has the image", LONGEST_SECONDS)
        began = time.monotonic()
        agents += _started(stack, site, root, library, range(len(agents), count))
        _until_ready(agents)
        seconds = time.monotonic() - began
        requests = len(origin.requests)
        return {
            "agents": float(count),
            "origin_copies": site.copies(),
            "origin_requests_per_agent": requests / count,
            "all_ready_s": seconds,
        }


def _started(stack: ExitStack, site: RolloutSite, root: Path, library: Path, numbers: range) -> list[StaticAgent]:
    started = []
    for number in numbers:
        place = root / f"agent-{number}"
        (place / "manifests").mkdir(parents=True)
        _configure(place, site)
        variables = nvml_library.environment(place, library=library, gpus=(nvml_library.H100,))
        process = agent_process.start(place, variables, "--static", place / "manifests")
        stack.callback(process.stop)
        started.append(StaticAgent(place, process))
    return started


def _configure(place: Path, site: RolloutSite) -> None:
    config = {
        "registries": {
            "hosts": {
                site.origin.host: {"plainHTTP": True, "mirrors": [site.mirror.host]},
                site.mirror.host: {"plainHTTP": True},
            }
        },
        "verification": {"mode": "off"},
        "store": {"minFreePercent": 0},
    }
    (place / "config.yaml").write_text(yaml.safe_dump(config))
    cache = {
        "apiVersion": "gkm.io/v1alpha1",
        "kind": "GKMCache",
        "metadata": {"name": "cache", "namespace": "bench"},
        "spec": {"image": f"{site.origin.host}/{REPOSITORY}@{site.digest}"},
    }
    (place / "manifests" / "cache.yaml").write_text(yaml.safe_dump(cache))


def _until_ready(agents: Sequence[StaticAgent]) -> None:
    waiting = list(agents)

    def all_ready() -> bool:
        waiting[:] = [agent for agent in waiting if not agent.is_ready()]
        return not waiting

    until(all_ready, "every agent has the cache", LONGEST_SECONDS, every=0.2)
