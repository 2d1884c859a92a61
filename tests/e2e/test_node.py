"""The node runs pods as a node does, and leaves the machine as it found it."""

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cluster.cluster import Cluster
from support.host.waiting import until
from support.node.container_images import BUSYBOX, File, Files
from support.node.sweep import SYSCTLS
from support.peers import require

PLACES = (
    "/etc/cni",
    "/opt/cni",
    "/opt/containerd",
    "/run/containerd",
    "/run/netns",
    "/run/runc",
    "/usr/libexec/kubernetes",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
)
"""Where kubelet, containerd, runc and CNI keep things unless told otherwise."""
OWNER = """
import sys
from pathlib import Path
from support.cluster.cluster import Cluster
sys.path.insert(0, sys.argv[2])
from test_node import run
with Cluster.start(Path(sys.argv[1]), node=True) as cluster:
    run(cluster, "sleep 1000", phase="Running")
    print("running", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    """A short path of its own, gone at the end; a mount left in it would fail the removal."""
    require.containerd()
    path = Path(tempfile.mkdtemp(prefix="gkm-"))
    yield path
    shutil.rmtree(path)


def run(cluster: Cluster, script: str, *, phase: str = "Succeeded", image: str = BUSYBOX, **spec: Any) -> str:  # noqa: ANN401 -- any field of a pod
    """Run a shell script in a pod until it is in `phase`; return the pod's name."""
    name = f"pod-{secrets.token_hex(4)}"
    container = {"name": "c", "image": image, "imagePullPolicy": "Never", "command": ["sh", "-c", script]}
    container |= spec.pop("container", {})
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container], **spec}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": pod})
    cluster.until(lambda: cluster.get("pod", name, "default")["status"].get("phase") == phase, f"{name} {phase}")
    return name


@pytest.mark.own_node
def test_a_pod_runs_to_completion_and_nothing_is_left(directory: Path) -> None:
    before = machine()
    with Cluster.start(directory / "c", node=True) as cluster:
        assert cluster.logs(run(cluster, "echo done")) == "done\n"
    assert machine() == before


@pytest.mark.own_node
def test_pods_that_still_run_are_taken_away_too(directory: Path) -> None:
    before = machine()
    with Cluster.start(directory / "c", node=True) as cluster:
        memory = {"name": "m", "emptyDir": {"medium": "Memory"}}
        mounted = {"volumeMounts": [{"name": "m", "mountPath": "/m"}]}
        run(cluster, "sleep 1000", phase="Running", volumes=[memory], container=mounted)
    assert machine() == before


@pytest.mark.own_node
def test_nothing_is_left_when_the_owner_is_killed(directory: Path) -> None:
    before = machine()
    here = Path(__file__).resolve().parent
    environment = {**os.environ, "PYTHONPATH": str(here.parent)}
    command = [sys.executable, "-c", OWNER, str(directory / "c"), str(here)]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"running\n"
        owner.send_signal(signal.SIGKILL)
    until(lambda: machine() == before, "the janitor to finish", 30)


def test_a_pod_finds_the_api_server(node_cluster: Cluster) -> None:
    pod = run(node_cluster, "nc -w 5 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null && echo reached")
    assert node_cluster.logs(pod) == "reached\n"


def test_an_image_of_ones_own_runs(node_cluster: Cluster) -> None:
    hello = File(b"#!/bin/busybox sh\necho from inside\n", 0o755)
    files: Files = {"bin/busybox": Path("/bin/busybox"), "bin/hello": hello}
    image = node_cluster.image("localhost/hello:1", files)
    pod = run(node_cluster, "", image=image, container={"command": ["/bin/hello"]})
    assert node_cluster.logs(pod) == "from inside\n"


def test_kubectl_exec_reaches_a_pod(node_cluster: Cluster) -> None:
    pod = run(node_cluster, "sleep 1000", phase="Running")
    assert node_cluster.kubectl("exec", pod, "--", "echo", "hello") == "hello\n"
    node_cluster.kubectl("delete", "pod", pod, "--force")


def test_mounts_made_in_a_pod_reach_the_node(node_cluster: Cluster) -> None:
    """Bidirectional propagation, which a CSI driver in a pod needs, works below kubelet's root."""
    shared = node_cluster.kubelet_root / "plugins"
    volumes = [{"name": "k", "hostPath": {"path": str(shared), "type": "DirectoryOrCreate"}}]
    mount = {"name": "k", "mountPath": "/k", "mountPropagation": "Bidirectional"}
    container = {"securityContext": {"privileged": True}, "volumeMounts": [mount]}
    name = f"m-{secrets.token_hex(4)}"
    run(node_cluster, f"mkdir /k/{name} && mount -t tmpfs {name} /k/{name}", volumes=volumes, container=container)
    assert name in Path("/proc/self/mountinfo").read_text()
    subprocess.run(["umount", str(shared / name)], check=True)


def machine() -> dict[str, object]:
    """Return what a node could leave behind, other than its own directory."""
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    return {
        "mounts": Path("/proc/self/mountinfo").read_text(),
        "links": re.findall(r"^\d+: (\S+):", links, re.MULTILINE),
        "firewall": firewall(),
        "cgroups": [path for path in files_below("/sys/fs/cgroup") if "/k8s.io" in path],
        "files": files_below(*PLACES),
        "sysctls": [(Path("/proc/sys") / name).read_text() for name in SYSCTLS],
        "processes": processes("containerd", "kubelet", "runc"),
    }


def files_below(*places: str) -> list[str]:
    """Return the directories and what is in them; what is removed meanwhile may be missing (os.walk ignores it)."""
    found = []
    for place in places:
        for directory, directories, files in os.walk(place):
            found += [directory, *(f"{directory}/{name}" for name in (*directories, *files))]
    return sorted(set(found))


def processes(*names: str) -> list[str]:
    """Return the processes whose names begin so; zombies have ended, and only their adopter has yet to look."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = path.read_text().partition("(")[2].rpartition(")")
            if name.startswith(names) and not rest.lstrip().startswith("Z"):
                found.append(name)
    return sorted(found)


def firewall() -> str:
    if not shutil.which("iptables-save"):
        return ""
    saved = subprocess.run(["iptables-save"], capture_output=True, text=True, check=False).stdout
    return "\n".join(line for line in saved.splitlines() if not line.startswith(("#", ":")))
