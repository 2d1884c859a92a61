"""A cluster in which no node runs GKM: a real kubelet and containerd 2 mount the verified cache as an image volume."""

import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from gkm.api.config import Registries, RegistryHost
from gkm.api.pod_caches import INJECTED
from gkm.images.reference import Reference
from gkm.images.registries import credentials
from gkm.images.registries.credentials import Keyring
from gkm.images.registries.registry import Registry
from gkm.images.signing import keys
from gkm.images.signing.forms import ImageSigner
from gkm.images.signing.sign import sign
from support.cli.command import gkm
from support.cluster.cluster import Cluster, KubectlFailed
from support.cluster.gkm_objects import Object, cache
from support.cluster.installation import ROOT, Installation
from support.e2e.triton_pods import compiling, hits
from support.node.container_images import BUSYBOX
from support.node.node import Runtime
from support.peers import require
from support.peers.tiers import USER_NAMESPACES
from support.registry.distribution import PASSWORD, USER, Distribution
from support.registry.olareg import Olareg
from support.sigstore.cosign import Cosign
from support.triton.cache import compiled

pytestmark = pytest.mark.heavy

NAMESPACE, SECRET = "default", "registry"
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
    private: Distribution
    """It asks who is there."""
    cosign: Cosign
    directory: Path

    def install(self) -> None:
        """Install GKM without anything on nodes, and start the controllers and the webhook."""
        config = {
            "delivery": "image",
            "verification": {"policies": [{"keys": [self.cosign.public_key.read_text()]}]},
            "registries": {"hosts": {host: {"plainHTTP": True} for host in (self.olareg.host, self.private.host)}},
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

    def private_image(self, name: str) -> str:
        """Build, push and sign an image in the registry that asks who is there; return its name with the digest."""
        access = json.dumps({"auths": {self.private.host: {"username": USER, "password": PASSWORD}}})
        (self.directory / "config.json").write_text(access)
        variables = {**os.environ, "DOCKER_CONFIG": str(self.directory)}
        image, path = f"{self.private.host}/e2e/{name}:1", f"{PATH}-{name}"
        words = ["--image", image, "--for-path", path, "--push", "-o", "json"]
        done = gkm("cache", "build", self.directory / "built", *words, env=variables)
        assert done.returncode == 0, done.stderr
        ref = Reference.parse(image).pinned(json.loads(done.stdout)["digest"])
        hosts = {self.private.host: RegistryHost(plain_http=True)}
        registry = Registry(Registries(hosts=hosts), Keyring([credentials.parse(access.encode())]))
        sign(registry, ref, ImageSigner.by_key(keys.read(str(self.cosign.private_key), b"")))
        return str(ref)

    def open_secret(self) -> None:
        """Create the Secret of the private registry, and let GKM read it as the sample does."""
        who = [f"--docker-server={self.private.host}", f"--docker-username={USER}", f"--docker-password={PASSWORD}"]
        self.cluster.kubectl("create", "secret", "docker-registry", SECRET, "-n", NAMESPACE, *who)
        for document in yaml.safe_load_all((ROOT / "deploy/samples/pull-secret.yaml").read_text(encoding="utf-8")):
            document["metadata"]["namespace"] = NAMESPACE
            self.cluster.apply(document)

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
    for command in (
        "etcd",
        "kube-apiserver",
        "kube-scheduler",
        "kubelet",
        "kubectl",
        "helm",
        "distribution",
        *sorted(USER_NAMESPACES),
    ):
        require.peer(command)
    with (
        tempfile.TemporaryDirectory(prefix="gkm-", ignore_cleanup_errors=True) as directory,
        Distribution.start(Path(directory) / "private", htpasswd=True) as private,
        Cluster.start(Path(directory) / "c", node=True, runtime=Runtime.mapping_ids()) as cluster,
    ):
        Path(directory).chmod(0o755)  # root of a pod in a user namespace passes the directories of the node
        installation = Installation(cluster, Path(directory) / "g", {}, values=VALUES)
        installation.directory.mkdir()
        labels = [f"{key}={value}" for key, value in H100.items()]
        cluster.kubectl("label", "node", cluster.node_name, *labels)
        try:
            yield Site(cluster, installation, olareg, private, cosign, Path(directory))
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


def test_gkm_why_names_the_delivery(site: Site, first_hit: tuple[str, str, float]) -> None:
    pinned, _, _ = first_hit
    done = gkm("why", "first", "-n", NAMESPACE, "--kubeconfig", site.cluster.kubeconfig, "-o", "json")
    steps = {step["check"]: step for step in json.loads(done.stdout)}
    assert {step["state"] for step in steps.values()} == {"ok"}
    assert steps["volume"]["detail"].startswith("GKMCache default/llama by an image volume (delivery: image)")
    assert steps["mount"]["detail"] == f"{pinned} is mounted, read-only"


def test_a_pod_in_a_user_namespace_reads_the_same_files(site: Site, first_hit: tuple[str, str, float]) -> None:
    assert first_hit
    pod = labeled("mapped", "llama", f"cat /proc/self/uid_map; cat {PATH}/*/__grp__*.json")
    pod["spec"]["hostUsers"] = False
    mapping, group = site.ended(pod).splitlines()
    assert int(mapping.split()[1]) >= 65536
    assert all(each.startswith(f"{PATH}/") for each in json.loads(group)["child_paths"].values())


def test_kubelet_pulls_with_the_secret_of_the_cache_and_why_names_a_failed_pull(
    site: Site, first_hit: tuple[str, str, float]
) -> None:
    assert first_hit
    site.open_secret()
    for name in ("private", "lost"):
        declared = cache(name, NAMESPACE, site.private_image(name))
        declared["spec"]["imagePullSecrets"] = [{"name": SECRET}]
        site.cluster.apply(declared)
        site.observed(name)
    assert hits(site.ended(labeled("reads-private", "private", "true", 128))) == [True]

    site.cluster.kubectl("delete", "secret", SECRET, "-n", NAMESPACE)
    site.cluster.apply(labeled("waits", "lost", "true"))

    def is_told() -> bool:
        done = gkm("why", "waits", "-n", NAMESPACE, "--kubeconfig", site.cluster.kubeconfig, "-o", "json")
        (mount,) = [step for step in json.loads(done.stdout) if step["check"] == "mount"]
        return " is not mounted: " in mount["detail"] and "Pull" in mount["detail"]

    site.cluster.until(is_told, "gkm why to name the pull", 60)
    site.cluster.kubectl("delete", "pod", "waits", "-n", NAMESPACE, "--grace-period=0", "--wait=true")


def test_a_copy_is_a_hit_and_takes_a_miss(site: Site, first_hit: tuple[str, str, float]) -> None:
    pinned, _, _ = first_hit
    pod = labeled("copies", "", "true", 128, 256, 256)
    del pod["metadata"]["labels"]
    spec = pod["spec"]
    (container,) = spec["containers"]
    kernels = {"name": "kernels", "mountPath": PATH}
    container["volumeMounts"].append(kernels)
    container["env"].append({"name": "TRITON_CACHE_DIR", "value": PATH})
    source = {"name": "source", "mountPath": "/source", "subPath": "io.triton.cache"}
    copy = {"name": "copy", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["cp", "-r", "/source/.", PATH]}
    security = {"securityContext": {"privileged": True}}
    spec["initContainers"] = [{**copy, **security, "volumeMounts": [source, kernels]}]
    spec["volumes"] += [{"name": "kernels", "emptyDir": {}}, {"name": "source", "image": {"reference": pinned}}]
    assert hits(site.ended(pod)) == [True, False, True]


def test_an_unsigned_image_reaches_no_pod(site: Site, first_hit: tuple[str, str, float]) -> None:
    assert first_hit
    unsigned = site.image("unsigned", site.directory / "built", signed=False)
    with pytest.raises(KubectlFailed, match="no signature was found"):
        site.cluster.apply(cache("unsigned", NAMESPACE, unsigned))
    said = "\n".join(site.cluster.objects.warnings(labeled("refused", "unsigned", "true"), dry_run=True))
    assert "no cache of this name was observed; the pod starts without it" in said
