"""GKM on a testbed cluster as users have it: our images in pods, deploy/base with next to nothing changed.

What is changed is what is different about this node: no GPU (a library of ours answers as NVML), kubelet's directory,
and directories of our own for state, so that a run leaves nothing behind on the machine.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from support.cluster.cluster import Cluster
from support.fakes import nvml_library
from support.peers import build as peers

Object = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]
SYSTEM = "gkm-system"
PARTS = ("gkm-admission", "gkm-agent", "gkm-controllers", "gkm-csi")
"""Each is one pod on a cluster of one node."""
KUBELET = "/var/lib/kubelet"
FAKE_DRIVER = "/run/fake-nvidia-driver"
# What the NVIDIA GPU operator and its container toolkit give to a node.
GPU_NODE_LABEL = "nvidia.com/gpu.present=true"
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

    def install(self, *, keys: Sequence[str], registries: Sequence[str], gpus: Sequence[nvml_library.Gpu]) -> None:
        """Apply CRDs and deploy/base; `keys` are PEM texts, `registries` are host:port that speak plain http."""
        library = nvml_library.build(peers.cache_directory().parent)
        driver = self.directory / "driver"
        driver.mkdir(parents=True)
        (driver / "libnvidia-ml.so.1").write_bytes((library / "libnvidia-ml.so.1").read_bytes())
        nvml_library.describe(driver / "nvml.json", gpus=gpus)
        config = {
            "verification": {"policies": [{"keys": list(keys)}]},
            "store": {"minFreePercent": 0},
            "registries": {"hosts": {host: {"plainHTTP": True} for host in registries}},
        }
        self.cluster.kubectl("label", "node", self.cluster.node_name, GPU_NODE_LABEL)
        self.cluster.apply(RUNTIME_CLASS)
        self.cluster.apply(ROOT / "crds")
        rendered = self.cluster.kubectl("kustomize", str(ROOT / "deploy" / "base"))
        objects: list[Object] = list(yaml.safe_load_all(rendered))
        for found in objects:
            self._fit(found, yaml.safe_dump(config), driver)
        self.cluster.apply("\n---\n".join(json.dumps(found) for found in objects))

    def _fit(self, found: Object, config: str, driver: Path) -> None:
        """Change an object for this node."""
        match found["kind"], found["metadata"]["name"]:
            case "ConfigMap", "gkm-config":
                found["data"]["config.yaml"] = config
            case "DaemonSet", "gkm-agent":
                self._place(found)
                pod, container = _pod_and_container(found)
                pod["volumes"].append({"name": "driver", "hostPath": {"path": str(driver), "type": "Directory"}})
                container["volumeMounts"].append({"name": "driver", "mountPath": FAKE_DRIVER, "readOnly": True})
                container["env"] += [
                    {"name": "LD_LIBRARY_PATH", "value": FAKE_DRIVER},
                    {"name": "GKM_FAKE_NVML", "value": f"{FAKE_DRIVER}/nvml.json"},
                ]
            case "Deployment", _:
                # Tests look at the one process of a part; tests/peers/operator has two that compete.
                found["spec"]["replicas"] = 1
            case "DaemonSet", "gkm-csi":
                self._place(found)
                container = _pod_and_container(found)[1]
                container["env"].append({"name": "GKM_KUBELET", "value": str(self.cluster.kubelet_root)})
                for mount in container["volumeMounts"]:
                    mount["mountPath"] = mount["mountPath"].replace(KUBELET, str(self.cluster.kubelet_root))

    def _place(self, found: Object) -> None:
        """Move directories of the node to where this node has them."""
        places: Mapping[str, Path] = {
            KUBELET: self.cluster.kubelet_root,
            "/var/lib/gkm": self.state,
            "/run/gkm": self.run_directory,
        }
        for volume in _pod_and_container(found)[0]["volumes"]:
            for path, place in places.items():
                if volume.get("hostPath", {}).get("path", "").startswith(path):
                    volume["hostPath"]["path"] = volume["hostPath"]["path"].replace(path, str(place))

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
            raise TimeoutError(f"{self.told(part)}\n{late}") from late

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

    def told(self, part: str) -> str:
        """Return what a part's pod says, for people who look for why it is not Ready."""
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


def _pod_and_container(found: Object) -> tuple[Object, Object]:
    pod = found["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return pod, container
