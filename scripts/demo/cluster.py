"""`make demo-cluster`: the same story on a real API server, kubelet and containerd, with a real registry and cosign."""

import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from gkm.images.reference import Reference
from gkm.images.registries import push
from support.cluster import gkm_objects as objects
from support.cluster.cluster import Cluster, KubectlFailed
from support.cluster.installation import Installation
from support.cluster.objects import RequestFailed
from support.host.processes import ProcessFailed
from support.images.archives import cache_image
from support.peers.missing import Missing
from support.registry.clients import plain_client
from support.registry.olareg import Olareg
from support.sigstore.cosign import Cosign

from demo.story import Story, StoryBroken, expect

NAMESPACE = "ml-apps"
SCRIPT = f"""
cd {objects.MOUNT} && find . -type f | wc -l && find . -name '*.cubin' -exec sha256sum {{}} +
touch {objects.MOUNT}/new || echo "cannot write"
"""


def main() -> int:
    """Tell the story; return the exit code."""
    if os.geteuid() != 0:
        sys.stderr.write("error: a kubelet and containerd need root; `make demo` tells the story without a cluster\n")
        return 1
    story = Story("GKM on a real cluster: API server, kubelet, containerd, olareg, cosign.")
    try:
        with ExitStack() as stack:
            directory = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="gkm-", ignore_cleanup_errors=True))
            )
            tell(story, stack, directory)
    except (StoryBroken, ProcessFailed, KubectlFailed, RequestFailed, Missing, TimeoutError, OSError) as broken:
        sys.stderr.write(f"error: the story broke off: {broken}\n")
        return 1
    story.end("All of it came true.")
    return 0


def tell(story: Story, stack: ExitStack, directory: Path) -> None:
    """Everything between the start of the cluster and its end."""
    cluster = story.tell(
        "a control plane and a node are up",
        lambda: stack.enter_context(Cluster.start(directory / "c", node=True)),
    )
    olareg = story.tell("a registry is up", lambda: stack.enter_context(Olareg.start(directory / "registry")))
    cosign = story.tell("cosign generate-key-pair", lambda: Cosign.create(directory / "cosign"))
    gkm = story.tell(
        "GKM is installed: CRDs, RBAC, policies, webhook, CSIDriver; operator, agent and CSI driver run",
        lambda: stack.enter_context(
            Installation.start(
                cluster, directory / "gkm", keys=[cosign.public_key.read_text()], registries=[olareg.host]
            )
        ),
    )
    signed, unsigned = images_are_made(story, olareg, cosign)
    cluster.apply(objects.namespace(NAMESPACE))
    cluster.apply(objects.namespace("another-team"))
    cache_arrives(story, cluster, signed)
    story.tell("kubectl apply of an unsigned image: refused", lambda: is_refused(cluster, unsigned))
    pods_mount(story, cluster)
    story.note("memory: " + ", ".join(f"{name} {rss(process.pid)} MiB" for name, process in gkm.processes.items()))


def images_are_made(story: Story, olareg: Olareg, cosign: Cosign) -> tuple[Reference, Reference]:
    """Push the cache twice and sign one of them."""
    registry = plain_client(olareg.host)
    image = cache_image()
    signed, unsigned = (Reference.parse(f"{olareg.host}/{NAMESPACE}/{name}:1") for name in ("vector-add", "unsigned"))
    story.tell("a real Triton cache is pushed as an image", lambda: push.image(registry, signed, image) and None)
    push.image(registry, unsigned, image)
    story.tell("cosign sign", lambda: cosign.sign(str(signed.pinned(image.digest))))
    return signed, unsigned


def cache_arrives(story: Story, cluster: Cluster, image: Reference) -> None:
    """Apply a GKMCache and wait for the node."""
    cluster.apply(objects.cache("vector-add", NAMESPACE, str(image)))

    def ready() -> bool:
        return bool(cluster.get("gkmcache", "vector-add", NAMESPACE).get("status", {}).get("ready") == "1/1")

    story.tell("kubectl apply of a GKMCache: Ready on 1/1 nodes", lambda: cluster.until(ready, "1/1 nodes") and None)
    for line in cluster.kubectl("get", "gkmcache,gkmcachenode", "--all-namespaces").splitlines():
        story.note(line)


def is_refused(cluster: Cluster, image: Reference) -> str:
    """Apply what admission must refuse because of its signature; return its words."""
    try:
        cluster.apply(objects.cache("unsigned", NAMESPACE, str(image)))
    except KubectlFailed as refusal:
        words = refusal.stderr.strip()
        expect(
            "(SignatureMissing)" in words and "no signature was found" in words,
            f"it was refused for another reason: {words}",
        )
        return words
    raise StoryBroken("it was admitted")


def pods_mount(story: Story, cluster: Cluster) -> None:
    """A pod that may, a pod that may not, and what is left of them."""
    cluster.apply(objects.pod("server", NAMESPACE, {"cacheName": "vector-add"}, SCRIPT))

    def phase(name: str, namespace: str) -> str:
        return str(cluster.get("pod", name, namespace)["status"]["phase"])

    story.tell(
        "a pod mounts it, lists and hashes it, and cannot write",
        lambda: cluster.until(lambda: phase("server", NAMESPACE) == "Succeeded", "the pod to end") and None,
    )
    printed = cluster.logs("server", NAMESPACE)
    for line in printed.splitlines():
        story.note(line)
    expect("Read-only file system" in printed and "cannot write" in printed, f"the pod printed {printed!r}")
    foreign = {"cacheName": "vector-add", "cacheNamespace": NAMESPACE}
    cluster.apply(objects.pod("stranger", "another-team", foreign, "true"))
    event = story.tell(
        "a pod of another namespace: refused, and its events say why",
        lambda: cluster.until(lambda: mount_event(cluster, "stranger", "another-team"), "an event"),
    )
    expect("PermissionDenied" in event and "belongs to another namespace" in event, event)
    for pod, namespace in (("server", NAMESPACE), ("stranger", "another-team")):
        cluster.kubectl("delete", "pod", pod, "--namespace", namespace)
    story.tell("the pods are deleted: nothing is left mounted", lambda: nothing_is_mounted(cluster))
    cluster.kubectl("delete", "gkmcache", "vector-add", "--namespace", NAMESPACE)
    story.tell(
        "the cache is deleted: the node forgets it",
        lambda: (
            cluster.until(
                lambda: not cluster.exists("gkmcachenode", cluster.node_name, NAMESPACE), "the node object to go"
            )
            and None
        ),
    )


def mount_event(cluster: Cluster, pod: str, namespace: str) -> str:
    """Return the message of the event that says why a pod's volume was not mounted."""
    about = f"involvedObject.name={pod},reason=FailedMount"
    return " ".join(event["message"] for event in cluster.objects.every("events", namespace, fieldSelector=about))


def nothing_is_mounted(cluster: Cluster) -> None:
    """Wait until no overlay of ours is below kubelet's directory."""

    def clean() -> bool:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        return not any("kubernetes.io~csi" in line and str(cluster.kubelet_root) in line for line in mounts)

    cluster.until(clean, "the mounts to go")


def rss(pid: int) -> int:
    """Return the resident memory of a process in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) // 1024


if __name__ == "__main__":
    sys.exit(main())
