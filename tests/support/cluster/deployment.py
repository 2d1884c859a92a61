"""GKM on a testbed cluster as users have it: our images in pods, installed by the chart with values of this node.

The values say what is different about this node: no GPU (a library of ours answers as NVML), kubelet's directory, and
directories of our own for state, so that a run leaves nothing behind on the machine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.chart.helm import Values
from support.chart.release import Release
from support.cluster.cluster import Cluster
from support.fakes import nvml_library

Object = dict[str, Any]
SYSTEM = "gkm-system"
PARTS = ("gkm-admission", "gkm-agent", "gkm-controllers", "gkm-csi")
"""Each is one pod on a cluster of one node."""
FAKE_DRIVER = "/run/fake-nvidia-driver"
# Of NVIDIA's GPU feature discovery.
GPU_NODE_LABEL = "nvidia.com/gpu.present=true"
# Of NVIDIA's GPU operator.
RUNTIME_CLASS: Object = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": "runc",
}


@dataclass(frozen=True)
class Deployment:
    """GKM in pods; `state` and `run_directory` are directories of the machine."""

    cluster: Cluster
    directory: Path

    @property
    def state(self) -> Path:
        return self.directory / "state"

    @property
    def run_directory(self) -> Path:
        return self.directory / "run"

    @property
    def release(self) -> Release:
        return Release(self.cluster, hooks=True)

    def install(self, *, keys: Sequence[str], registries: Sequence[str], gpus: Sequence[nvml_library.Gpu]) -> None:
        """Install the chart; `keys` are PEM texts, `registries` are host:port that speak plain http."""
        self.equip(gpus)
        self.cluster.kubectl("label", "node", self.cluster.node_name, GPU_NODE_LABEL)
        self.release.install({**self.values(), "config": self.config(keys, registries)})
        for part in PARTS:
            self.ready(part)

    def equip(self, gpus: Sequence[nvml_library.Gpu]) -> None:
        """Give the node what it has before GKM: a driver and a runtime class."""
        library = nvml_library.build()
        self._driver.mkdir(parents=True)
        (self._driver / "libnvidia-ml.so.1").write_bytes((library / "libnvidia-ml.so.1").read_bytes())
        nvml_library.describe(self._driver / "nvml.json", gpus=gpus)
        self.cluster.apply(RUNTIME_CLASS)

    def values(self) -> Values:
        """Return the values of the chart that this node needs, without `config`."""
        paths = {"kubelet": self.cluster.kubelet_root, "state": self.state, "run": self.run_directory}
        environment = {"LD_LIBRARY_PATH": FAKE_DRIVER, "GKM_FAKE_NVML": f"{FAKE_DRIVER}/nvml.json"}
        return {
            "hostPaths": {name: str(path) for name, path in paths.items()},
            "agent": {
                "extraEnv": [{"name": name, "value": value} for name, value in environment.items()],
                "extraVolumes": [{"name": "fake", "hostPath": {"path": str(self._driver), "type": "Directory"}}],
                "extraVolumeMounts": [{"name": "fake", "mountPath": FAKE_DRIVER, "readOnly": True}],
            },
            # Tests look at the one process of a part; tests/partners/operator has two that compete.
            "controllers": {"replicas": 1},
            "admission": {"replicas": 1},
        }

    def config(self, keys: Sequence[str], registries: Sequence[str]) -> Mapping[str, Any]:
        """Return a configuration that trusts these keys and reaches these registries."""
        return {
            "verification": {"policies": [{"keys": list(keys)}]},
            "store": {"minFreePercent": 0},
            "capture": {"minFreePercent": 0},
            "registries": {"hosts": {host: {"plainHTTP": True} for host in registries}},
        }

    @property
    def _driver(self) -> Path:
        return self.directory / "driver"

    def pod(self, part: str) -> Object:
        """Return the one pod of a part that is not on its way out; while there is none, or two, an empty object."""
        found = self.cluster.objects.every("pods", SYSTEM, labelSelector=f"app.kubernetes.io/name={part}")
        living = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return dict(living[0]) if len(living) == 1 else {}

    def ready(self, part: str, *, other_than: str = "") -> Object:
        """Wait until a part's pod is Ready, and return it; `other_than` is the uid of one that went away."""

        def probe() -> Object | None:
            pod = self.pod(part)
            conditions = pod.get("status", {}).get("conditions", [])
            ready = any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)
            return pod if ready and pod["metadata"]["uid"] != other_than else None

        try:
            return self.cluster.until(probe, f"the pod of {part} to be Ready")
        except TimeoutError as late:
            raise TimeoutError(f"{self.described(part)}\n{late}") from late

    def replace(self, part: str) -> Object:
        """Delete a part's pod and wait for its successor."""
        old = self.ready(part)["metadata"]
        self.cluster.kubectl("delete", "pod", old["name"], "-n", SYSTEM)
        return self.ready(part, other_than=old["uid"])

    def process(self, part: str) -> "Inside":
        """Return the process that a part's container is, as the machine sees it."""
        (status,) = self.ready(part)["status"]["containerStatuses"]
        assert self.cluster.node is not None
        task = self.cluster.node.places.tasks / status["containerID"].removeprefix("containerd://")
        return Inside(int((task / "init.pid").read_text()))

    def described(self, part: str) -> str:
        """Return the description and the log of a part's pod, for people who look for why it is not Ready."""
        selector = f"--selector=app.kubernetes.io/name={part}"
        described = self.cluster.kubectl("describe", "pods", "-n", SYSTEM, selector)
        return f"{described}\n{self.cluster.kubectl('logs', '-n', SYSTEM, selector, '--tail=30')}"


@dataclass(frozen=True)
class Inside:
    """A process in a container."""

    pid: int

    def status(self, field: str) -> str:
        """Return a field of /proc/<pid>/status, as CapEff or VmRSS."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith(f"{field}:"))
