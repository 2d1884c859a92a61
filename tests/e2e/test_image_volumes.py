"""A cluster in which no node runs GKM: a real kubelet and containerd 2 mount the verified cache as an image volume."""

import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from gkm.api.pod_caches import INJECTED
from support.cli.command import gkm
from support.cluster.cluster import Cluster
from support.cluster.gkm_objects import Object, cache
from support.cluster.installation import Installation
from support.e2e.triton_pods import compiling, hits
from support.node.node import Runtime
from support.peers import require
from support.peers.tiers import USER_NAMESPACES
from support.registry.olareg import Olareg
from support.sigstore.cosign import Cosign
from support.triton.cache import compiled

pytestmark = pytest.mark.heavy

NAMESPACE = "default"
PATH = "/var/cache/gkm/llama"
H100 = {"nvidia.com/gpu.compute.major": "9", "nvidia.com/gpu.compute.minor": "0"}
VALUES = {"config": {"delivery": "image"}, "features": {"podCaches": True}}
_ENDED = ("Succeeded", "Failed")


@dataclass
class Site:
    """The cluster with a node of one kind of GPU, a registry, and who signs."""

    cluster: Cluster
    installation: Installation
    olareg: Olareg
    cosign: Cosign
    directory: Path

    def install(self) -> None:
        """Install GKM without anything on nodes, and start the controllers and the webhook."""
        config = {
            "delivery": "image",
            "verification": {"policies": [{"keys": [self.cosign.public_key.read_text()]}]},
            "registries": {"hosts": {self.olareg.host: {"plainHTTP": True}}},
        }
        self.installation.config.write_text(yaml.safe_dump(config))
        self.installation.install()
        self.installation.run("controllers")
        self.installation.run("admission")

    def image(self, name: str, directory: Path, *, signed: bool = True, path: str = PATH) -> str:
        """Build an image for a path with the command of users, push and sign it; return its name with the digest."""
        name = f"{self.olareg.host}/e2e/{name}:1"
        done = gkm("cache", "build", directory, "--image", name, "--for-path", path, "--push", "-o", "json")
        assert done.returncode == 0, done.stderr
        pinned = f"{name.removesuffix(':1')}@{json.loads(done.stdout)['digest']}"
        if signed:
            self.cosign.sign(pinned)
        return pinned

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.get("gkmcache", name, NAMESPACE).get("status", {})
        return found

    def observed(self, name: str) -> None:
        """Wait until a pod of the label would get the image."""

        def gets_it() -> bool:
            tried = json.dumps(labeled("tried", name, "true"))
            made = self.cluster.kubectl("create", "--dry-run=server", "-ojson", "-f-", input=tried)
            return "caches" in json.loads(json.loads(made)["metadata"]["annotations"].get(INJECTED, "{}"))

        self.cluster.until(gets_it, f"the webhook to add {name}")

    def ended(self, pod: Object) -> str:
        """Create a pod, wait for its end, and return what it printed."""
        self.cluster.apply(pod)
        name = pod["metadata"]["name"]
        self.cluster.until(lambda: self.phase(name) in _ENDED, f"the end of {name}", 60)
        return self.cluster.logs(name, NAMESPACE)

    def phase(self, name: str) -> str:
        return str(self.cluster.get("pod", name, NAMESPACE)["status"].get("phase"))


def labeled(name: str, family: str, script: str, *kernels: int | str) -> Object:
    """A pod without a volume of GKM that names a cache, and runs Triton or a script."""
    made = compiling(name, NAMESPACE, {}, *kernels, then=script)
    made["metadata"] |= {"labels": {"gkm.io/cache": family}, "annotations": {"gkm.io/cache-mode": "read-only"}}
    spec = made["spec"]
    spec["nodeSelector"] = H100
    spec["volumes"] = [each for each in spec["volumes"] if "csi" not in each]
    (container,) = spec["containers"]
    container["volumeMounts"] = [each for each in container["volumeMounts"] if each["name"] != "kernels"]
    container["env"] = [each for each in container["env"] if each["name"] != "TRITON_CACHE_DIR"]
    # The runc of this node knows no seccomp.
    container["securityContext"] = {"privileged": True}
    return made


@pytest.fixture(scope="module")
def site(olareg: Olareg, cosign: Cosign) -> Iterator[Site]:
    require.containerd()
    for command in ("etcd", "kube-apiserver", "kube-scheduler", "kubelet", "kubectl", "helm", *sorted(USER_NAMESPACES)):
        require.peer(command)
    with (
        tempfile.TemporaryDirectory(prefix="gkm-", ignore_cleanup_errors=True) as directory,
        Cluster.start(Path(directory) / "c", node=True, runtime=Runtime.mapping_ids()) as cluster,
    ):
        installation = Installation(cluster, Path(directory) / "g", {}, values=VALUES)
        installation.directory.mkdir()
        labels = [f"{key}={value}" for key, value in H100.items()]
        cluster.kubectl("label", "node", cluster.node_name, *labels)
        try:
            yield Site(cluster, installation, olareg, cosign, Path(directory))
        finally:
            installation.stop()


@pytest.fixture(scope="module")
def first_hit(site: Site) -> tuple[str, str, float]:
    """Install GKM, declare a signed cache, and run the first pod; return the image, what it printed, and seconds."""
    with require.absences():
        compiled(site.directory / "built")
    pinned = site.image("llama", site.directory / "built")
    began = time.monotonic()
    site.install()
    site.cluster.apply(cache("llama", NAMESPACE, pinned))
    site.observed("llama")
    printed = site.ended(labeled("first", "llama", f"touch {PATH}/new; sleep 0", 128))
    return pinned, printed, time.monotonic() - began


def test_the_first_pod_hits_without_a_daemon_set(site: Site, first_hit: tuple[str, str, float]) -> None:
    pinned, printed, seconds = first_hit
    print(f"install to first hit: {seconds:.1f} s")  # noqa: T201 -- a measurement
    kernels = [line for line in printed.splitlines() if line.startswith("{")]
    assert hits("\n".join(kernels)) == [True]
    assert "Read-only file system" in printed
    for kind in ("daemonsets", "csidrivers"):
        assert site.cluster.kubectl("get", kind, "-A", "-o", "name") == ""
    made = site.cluster.get("pod", "first", NAMESPACE)
    (volume,) = [each for each in made["spec"]["volumes"] if each["name"] == "gkm-cache"]
    assert volume["image"]["reference"] == pinned


def test_the_status_counts_the_nodes_of_the_pods(site: Site, first_hit: tuple[str, str, float]) -> None:
    pinned, _, _ = first_hit
    site.cluster.apply(labeled("stays", "llama", "sleep 600"))

    def counted() -> bool:
        found = site.status("llama")
        return (found.get("totalNodes"), found.get("readyNodes"), found.get("podsUsing")) == (1, 1, 1)

    site.cluster.until(counted, "the pod to be counted", 60)
    status = site.status("llama")
    assert (status["delivery"], status["imageVolume"]) == (
        "image",
        {"reference": pinned, "path": PATH, "gpus": ["sm_90"]},
    )
    site.cluster.kubectl("delete", "pod", "stays", "-n", NAMESPACE, "--grace-period=0", "--wait=true")
    site.cluster.until(lambda: site.status("llama")["podsUsing"] == 0, "the pod to be gone from the status")


def test_an_unsigned_image_reaches_no_pod(site: Site, first_hit: tuple[str, str, float]) -> None:
    assert first_hit
    unsigned = site.image("unsigned", site.directory / "built", signed=False, path=f"{PATH}-unsigned")
    site.cluster.apply(cache("unsigned", NAMESPACE, unsigned))
    site.cluster.until(lambda: site.status("unsigned").get("conditions"), "the verdict")
    assert "imageVolume" not in site.status("unsigned")
    tried = labeled("refused", "unsigned", "true")
    said = "\n".join(site.cluster.objects.warnings(tried, dry_run=True))
    assert "unsigned: it is not verified, or was not built with gkm cache build --for-path" in said
