"""`make demo`: one real Triton cache goes from a registry into a mount on this machine, without a cluster; and a plan.

Real: the cache, the registry's protocol, the signature, the agent, the CSI driver and its socket, the mount. Made up:
the GPU, which is described to a library with NVML's functions, so that the demo is the same on every machine.
"""

import errno
import hashlib
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from support.csi.client import CSIClient
from support.fakes import nvml_library
from support.host import private_mounts
from support.host.processes import ProcessFailed
from support.host.sealed import unseal
from support.registry import faults
from support.registry.push import Target
from support.registry.server import Registry
from support.sigstore.key_signatures import SigningKey, sign_bundle

from demo.machine import NAMESPACE, Place
from demo.plan import groups_are_placed
from demo.story import Story, StoryBroken, expect

CACHE = Path(__file__).resolve().parents[2] / "tests" / "data" / "triton-cache"
POD = {"pod.name": "server", "pod.namespace": NAMESPACE, "pod.uid": "a1b2", "ephemeral": "true"}
HOPPER, AMPERE = "node-h100", "node-a100"


def main() -> int:
    """Tell the story; return the exit code."""
    without_mounts = _why_without_mounts()
    story = Story("GKM: one signed kernel cache, from a registry into a mount; and where 64 groups of GPUs go.")
    try:
        with ExitStack() as stack:
            place = arrange(story, stack)
            built = image_is_made(story, place)
            cache_arrives(story, stack, place, built.digest)
            if without_mounts:
                story.note(f"Nothing is mounted, so publish and unpublish are left out: {without_mounts}.")
            else:
                pods_mount(story, stack, place)
            wrong_ones_are_refused(story, stack, place, built)
            groups_are_placed(story, place.directory / "plans")
    except (StoryBroken, ProcessFailed, TimeoutError, RuntimeError, grpc.RpcError) as broken:
        sys.stderr.write(f"error: the story broke off: {broken}\n")
        return 1
    story.end("All of it came true, but for the mounts." if without_mounts else "All of it came true.")
    return 0


def _why_without_mounts() -> str:
    """Enter a mount namespace; return why that is not possible here, "" where it is."""
    try:
        private_mounts.enter()
    except OSError as error:
        return f"this user may not make a user and mount namespace ({error.strerror}); root may"
    return ""


def arrange(story: Story, stack: ExitStack) -> Place:
    """Make the place: a directory, a registry, a key and a GPU."""
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gkm-demo-")))
    # Sealed directories have no write bit; without root they must get it back before they can be removed.
    stack.callback(unseal, directory)
    registry = stack.enter_context(Registry.start())
    library = story.tell("a machine is described: no GPU is needed, NVML answers as a file says", nvml_library.build)
    return Place(directory, registry, SigningKey(), library)


class Built(NamedTuple):
    """The image of the demo: digests of its manifest and its layer."""

    digest: str
    layer: str


def image_is_made(story: Story, place: Place) -> Built:
    """Build, push, sign and verify."""
    reference = f"{place.image}:1"
    built = story.tell(
        "gkm cache build --push: a cache that real Triton 3.9 compiled becomes an image",
        lambda: place.gkm("cache", "build", CACHE, "--image", reference, "--push"),
    )
    digest = str(built["digest"])
    story.note(f"{place.image}@{digest}")
    story.note(f"for {built['labels']['cache.triton.image/summary']}")
    story.tell("signed by key, in the form cosign 3 writes", lambda: sign(place, place.key, digest))
    key = place.directory / "cosign.pub"
    key.write_bytes(place.key.public_pem)
    verified = story.tell(
        "gkm cache verify: resolved and verified", lambda: place.gkm("cache", "verify", reference, "--key", key)
    )
    story.note(verified["message"])
    return Built(digest, str(built["layers"][0]["digest"]))


def sign(place: Place, key: SigningKey, digest: str) -> None:
    """Sign an image of the demo's repository."""
    sign_bundle(Target(place.registry.host, f"{NAMESPACE}/vector-add"), digest, key)


def cache_arrives(story: Story, stack: ExitStack, place: Place, digest: str) -> None:
    """Declare the cache and let a node with an H100 make it real."""
    place.declare("vector-add", f"{place.image}:1")
    place.agent(stack, HOPPER, nvml_library.H100)
    said = story.tell(
        "declared as GKMCache ml-apps/vector-add; gkm-agent verifies, checks its GPU, fetches, extracts, seals",
        lambda: place.state(HOPPER, "vector-add", "Ready"),
    )
    expect(said["digest"] == digest, f"the node made {said['digest']} real")
    story.note(f"Ready on {HOPPER}: GPUs {said['compatibleGPUs'][0]['ids']}, {said['sizeBytes']} bytes")


def pods_mount(story: Story, stack: ExitStack, place: Place) -> None:
    """Publish through the real socket, read, fail to write, and unpublish."""
    csi = story.tell("gkm-csi answers on its socket", lambda: place.csi(stack, HOPPER))
    target = volume(place, POD)
    attributes = {"cacheName": "vector-add"}
    # Also where the story breaks off: the directory can be removed only without the mount.
    stack.callback(csi.unpublish, "csi-demo", target)
    story.tell("a pod of ml-apps: NodePublishVolume", lambda: csi.publish("csi-demo", target, POD, attributes))
    story.tell("the pod reads what Triton wrote, byte for byte", lambda: same_files(target))
    story.tell("the pod writes: refused, the mount is read-only", lambda: cannot_write(target))
    stranger = {**POD, "pod.namespace": "another-team", "pod.uid": "c3d4"}
    foreign = {**attributes, "cacheNamespace": NAMESPACE}
    story.tell(
        "a pod of another namespace asks for the cache: refused",
        lambda: refused(csi, volume(place, stranger), stranger, foreign),
    )
    story.tell("the pod ends: NodeUnpublishVolume", lambda: csi.unpublish("csi-demo", target))
    expect(not target.exists(), f"{target} is still there")
    left = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(place.directory) in line]
    expect(not left, f"still mounted: {left}")
    story.note("nothing is left mounted")


def volume(place: Place, pod: dict[str, str]) -> Path:
    """Return where kubelet of the node wants a pod's volume, in a directory that kubelet has made."""
    pods = place.directory / HOPPER / "kubelet" / "pods"
    target = pods / pod["pod.uid"] / "volumes" / "kubernetes.io~csi" / "k" / "mount"
    target.parent.mkdir(parents=True)
    return target


def wrong_ones_are_refused(story: Story, stack: ExitStack, place: Place, built: Built) -> None:
    """What must not arrive does not: tampered, wrongly signed, for another GPU."""
    place.registry.misbehave(faults.tampered(f"blobs/{built.layer}"))
    place.declare("tampered", f"{place.image}@{built.digest}")
    # On another node: the first one has the content already, and needs no blob for it.
    place.agent(stack, "node-h100-b", nvml_library.H100)
    said = story.tell(
        "the registry hands out changed bytes: not extracted", lambda: place.state("node-h100-b", "tampered", "Failed")
    )
    because(story, said, "DigestMismatch", built.layer)
    place.registry.behave()
    other = place.gkm("cache", "build", CACHE, "--image", f"{place.image}-b:1", "--push")
    place.declare("unsigned", f"{place.image}-b@{other['digest']}")
    said = story.tell("an image that nobody signed: refused", lambda: place.state(HOPPER, "unsigned", "Failed"))
    because(story, said, "SignatureMissing", "no signature was found")
    place.agent(stack, AMPERE, nvml_library.A100)
    said = story.tell(
        "a node with another GPU: nothing is fetched", lambda: place.state(AMPERE, "vector-add", "Incompatible")
    )
    because(story, said["incompatibleGPUs"][0], "ArchitectureMismatch", "this GPU is sm_80")


def because(story: Story, said: Mapping[str, Any], reason: str, fact: str) -> None:
    """Show why something was refused. A refusal with another reason, or without this fact, proves another statement."""
    words = f"{said['reason']}: {said['message']}"
    expect(said["reason"] == reason and fact in said["message"], f"it was refused for another reason: {words}")
    story.note(words)


def same_files(target: Path) -> str:
    """Compare what is mounted with what was built; return a line about it."""

    def hashes(directory: Path) -> dict[str, str]:
        files = (path for path in directory.rglob("*") if path.is_file())
        return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    mounted = hashes(target)
    expect(mounted == hashes(CACHE), f"the mount holds {sorted(mounted)}")
    return f"{len(mounted)} files, every sha256 as it was"


def cannot_write(target: Path) -> str:
    """Try to write into the mount; return the kernel's words."""
    try:
        (target / "new").write_text("x")
    except OSError as error:
        expect(error.errno == errno.EROFS, str(error))
        return str(error.strerror)
    raise StoryBroken("the mount is writable")


def refused(csi: CSIClient, target: Path, pod: dict[str, str], attributes: dict[str, str]) -> str:
    """Publish what the driver must refuse because of its namespace; return the driver's words."""
    try:
        csi.publish("csi-stranger", target, pod, attributes)
    except grpc.RpcError as error:
        words = f"{error.code().name}: {error.details()}"
        by_namespace = words.startswith("PERMISSION_DENIED") and "belongs to another namespace" in words
        expect(by_namespace, f"it was refused for another reason: {words}")
        return words
    raise StoryBroken("the driver mounted it")


if __name__ == "__main__":
    sys.exit(main())
