"""Families on a real node: the settings under which captures become caches, and pods of one manifest."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

import yaml
from gkm.images.reference import Reference
from support.cluster.gkm_objects import MOUNT, Object
from support.e2e.fleet import Fleet
from support.e2e.torch_pods import compiling_model
from support.e2e.triton_pods import compiling, hits
from support.fakes import nvml_library
from support.torch.cache import TorchCounters, parse

SECONDS = 300.0
"""For a step of several processes on a loaded machine."""


@contextmanager
def capturing(fleet: Fleet, mode: str) -> Iterator[None]:
    """Give the node a registry and a signer for captures, and the driver a mode of capture, until the block ends."""
    before, mode_before = fleet.gkm.config.read_text(), fleet.gkm.capture_mode
    config = yaml.load(before, yaml.CSafeLoader)
    signing = {"keyFile": str(fleet.cosign.private_key)}
    config["capture"] |= {"registry": f"{fleet.olareg.host}/captured", "signing": signing}
    config["capture"]["caches"] = {"maxAge": 3e9}
    try:
        _restart(fleet, yaml.safe_dump(config), mode)
        yield
    finally:
        _restart(fleet, before, mode_before)


def _restart(fleet: Fleet, config: str, mode: str) -> None:
    fleet.gkm.config.write_text(config)
    fleet.gkm.capture_mode = mode
    for name in ("agent", "controllers", "csi"):
        fleet.gkm.processes[name].stop()
        fleet.gkm.run(name)


@contextmanager
def other_gpus(fleet: Fleet, *gpus: nvml_library.Gpu) -> Iterator[None]:
    """Give the node these GPUs instead of its H100 until the block ends; pods keep the volumes that they have."""
    try:
        _replace_gpus(fleet, *gpus)
        yield
    finally:
        _replace_gpus(fleet, nvml_library.H100)


def _replace_gpus(fleet: Fleet, *gpus: nvml_library.Gpu) -> None:
    fleet.gkm.processes["agent"].stop()
    nvml_library.describe(fleet.gkm.directory / "nvml.json", gpus=gpus)
    fleet.gkm.run("agent")


@dataclass
class Family:
    """The family `name` in a namespace. Its pods say neither `readOnly`, `ifUnavailable` nor `capture`."""

    fleet: Fleet
    namespace: str
    name: str = "llama"
    _numbers: "count[int]" = field(default_factory=count)

    def compiled(self, *kernels: int | str) -> list[bool]:
        """Run a pod to its end and delete it; return for each kernel whether Triton found it."""
        return hits(self._run(lambda name, manifest: compiling(name, self.namespace, manifest, *kernels)))

    def compiled_by_torch(self, *options: object) -> TorchCounters:
        """Run a pod that compiles the model with torch to its end and delete it; return what torch counted."""
        return parse(self._run(lambda name, manifest: compiling_model(name, self.namespace, manifest, *options)))

    def _run(self, pod: Callable[[str, Mapping[str, str]], Object]) -> str:
        name = f"pod-{next(self._numbers)}"
        self.fleet.cluster.apply(pod(name, {"cacheName": self.name, "mountPath": MOUNT}))
        printed = self.fleet.ended(name, self.namespace)
        self.fleet.kubectl("delete", "pod", name, "--namespace", self.namespace, "--grace-period=0")
        return printed

    def warm(self, *kernels: int | str) -> str:
        """Start a pod that compiles, requests a capture, and goes on for an hour; return its name."""
        name = f"pod-{next(self._numbers)}"
        manifest = {"cacheName": self.name, "mountPath": MOUNT, "capture": "true"}
        manifest |= {"readOnly": "false", "ifUnavailable": "compile"}
        then = f"touch {MOUNT}/.gkm-capture && sleep 3600"
        self.fleet.cluster.apply(compiling(name, self.namespace, manifest, *kernels, then=then))
        return name

    def generations(self) -> Mapping[int, Object]:
        """Return the members that the controllers registered, by generation."""
        found = self.fleet.cluster.objects.every("gkmcaches", self.namespace)
        return {each["spec"]["generation"]: each for each in found if each["spec"].get("family") == self.name}

    def ready(self, generation: int, node: str) -> Object:
        """Wait until a generation is Ready on a node; return the cache object."""

        return self.reaches(generation, node, state="Ready")

    def reaches(self, generation: int, node: str, **status: object) -> Object:
        """Wait until the report of a node about a generation has these values; return the cache object."""

        def reached() -> Object | None:
            member = self.generations().get(generation)
            return member if member and status.items() <= self.on_node(member, node).items() else None

        return self.fleet.cluster.until(reached, f"generation {generation} to be {status} on {node}", SECONDS)

    def on_node(self, member: Object, node: str) -> Object:
        """Return the report of a node about a member; an empty object without one."""
        if not self.fleet.cluster.exists("gkmcachenode", node, self.namespace):
            return {}
        status = self.fleet.cluster.objects.get("gkmcachenode", node, self.namespace).get("status", {})
        found: Object = status.get("caches", {}).get(member["metadata"]["name"], {})
        return found

    def layers(self, member: Object) -> list[tuple[str, int]]:
        """Return digest and size of each layer of a member's image."""
        manifest = self.fleet.registry.manifest(Reference.parse(member["spec"]["image"])).image()
        return [(layer.digest, layer.size) for layer in manifest.layers]
