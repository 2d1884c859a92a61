"""What tests on a real node do again and again: push and sign an image, declare it, mount it, see what became of it."""

import json
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from gkm.images.local_image import LocalImage
from gkm.images.reference import Reference
from gkm.images.registries import push
from gkm.images.registries.registry import Registry
from support.cluster import gkm_objects as objects
from support.cluster.cluster import Cluster
from support.cluster.installation import Installation
from support.images.archives import cache_image
from support.registry.clients import plain_client
from support.registry.distribution import Distribution
from support.registry.olareg import Olareg
from support.sigstore.cosign import Cosign

DATA = Path(__file__).parents[2] / "data"
CACHE = DATA / "triton-cache"
SILENT = "127.0.0.1:1"
"""A registry that is configured and never answers."""
T = TypeVar("T")


@dataclass
class Fleet:
    cluster: Cluster
    gkm: Installation
    olareg: Olareg
    cosign: Cosign
    private: Distribution | None = None
    """A registry that asks who is there."""
    _numbers: "count[int]" = field(default_factory=count)

    def new_namespace(self) -> str:
        name = f"team-{next(self._numbers)}"
        self.cluster.apply(objects.namespace(name))
        return name

    def empty(self, namespace: str) -> None:
        """Delete what a test made, and wait until the node has let go of it."""
        now = ("--all", "--namespace", namespace, "--wait=false", "--grace-period=0")
        self.cluster.kubectl("delete", "pods,gkmcaches", *now)
        self.until(lambda: not self.cluster.objects.every("pods", namespace), "the pods to go")
        self.until(lambda: not self.mounts(namespace), "the mounts to go")

    @property
    def registry(self) -> Registry:
        return plain_client(self.olareg.host)

    def image(self, name: str, *, signed: bool = True, built: LocalImage | None = None) -> Reference:
        """Push an image under a name of its own; return it pinned."""
        ref = Reference.parse(f"{self.olareg.host}/e2e/{name}-{next(self._numbers)}:1")
        pinned = ref.pinned(push.image(self.registry, ref, built or cache_image(name)))
        if signed:
            self.cosign.sign(str(pinned))
        return pinned

    def declare(self, name: str, namespace: str | None, image: Reference | str) -> None:
        self.cluster.apply(objects.cache(name, namespace, str(image)))

    def on_node(self, name: str, namespace: str) -> dict[str, Any]:
        """What the node object says of a cache; nothing yet is an empty object."""
        status = self.cluster.objects.get("gkmcachenode", self.cluster.node_name, namespace).get("status", {})
        found: dict[str, Any] = status.get("caches", {}).get(name, {})
        return found

    def reaches(self, name: str, namespace: str, state: str) -> dict[str, Any]:
        """Wait for a cache to be in a state on the node."""

        def reached() -> dict[str, Any] | None:
            said = self.on_node(name, namespace)
            return said if said.get("state") == state else None

        return self.until(reached, f"{namespace}/{name} to be {state}")

    def condition(self, name: str, namespace: str, kind: str) -> dict[str, Any]:
        status = self.cluster.get("gkmcache", name, namespace).get("status", {})
        return next((found for found in status.get("conditions", []) if found["type"] == kind), {})

    def pod(self, name: str, namespace: str, script: str, **attributes: str) -> None:
        self.cluster.apply(objects.pod(name, namespace, attributes, script))

    def ended(self, name: str, namespace: str) -> str:
        """Wait until a pod has succeeded; return what it printed."""

        def done() -> bool:
            return bool(self.cluster.get("pod", name, namespace)["status"]["phase"] == "Succeeded")

        self.until(done, f"pod {name} to succeed: {self.mount_events(name, namespace)}")
        return self.cluster.logs(name, namespace)

    def mount_events(self, pod: str, namespace: str) -> str:
        about = f"involvedObject.name={pod},reason=FailedMount"
        events = self.cluster.objects.every("events", namespace, fieldSelector=about)
        return " ".join(event["message"] for event in events)

    def refused_mount(self, pod: str, namespace: str, *, saying: str) -> str:
        """Wait for an event that says why a pod's volume is not mounted, in these words; return all such events."""

        def said() -> str | None:
            events = self.mount_events(pod, namespace)
            return events if saying in events else None

        return self.until(said, f"an event about the volume of {pod} that says {saying!r}")

    def mounts(self, namespace: str) -> list[str]:
        """The overlays of a namespace's pods, by the records of the CSI driver and by the kernel."""
        records = (self.gkm.run_directory / "volumes").glob("*/record.json")
        targets = [json.loads(path.read_text()) for path in records]
        mounted = Path("/proc/self/mountinfo").read_text()
        return [
            record["targetPath"]
            for record in targets
            if record["podNamespace"] == namespace or record["targetPath"] not in mounted
        ]

    def kill(self, name: str) -> None:
        """kill -9 one of our processes, and collect it."""
        process = self.gkm.processes[name]
        process.popen.send_signal(signal.SIGKILL)
        process.popen.wait()

    def kubectl(self, *arguments: str) -> str:
        return self.cluster.kubectl(*arguments)

    def until(self, probe: Callable[[], T | None], what: str) -> T:
        return self.cluster.until(probe, what)
