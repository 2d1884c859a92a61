"""Captures become caches and end again: real controllers, API server and registries; real cosign verifies them."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count, cycle
from pathlib import Path

import msgspec
import pytest
import yaml
from gkm.api.errors import GKMError, Reason
from gkm.api.meta import timestamp
from gkm.api.nodes import CapturedImage
from gkm.images.captured.content import PREDICATE_TYPE, Hardware, cache_name, member_name
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry
from gkm.images.signing import keys
from gkm.images.signing.forms import ImageSigner
from gkm.images.signing.sign import attest
from gkm.kube.client import connect
from gkm.kube.resources import GKMCACHENODES, NODES, Json
from gkm_agent.capturing.progress import load_files
from support.agent.capturing import PASSWORD, CaptureNode, write_key
from support.cluster.cluster import Cluster, KubectlFailed
from support.host import pages
from support.host.processes import Process
from support.host.waiting import until
from support.kube.our_kinds import CONTROLLERS
from support.operator.deployment import operator, refused_requests
from support.operator.nodes import kube_node, put
from support.sigstore.cosign import Cosign

LONG, SHORT = 3e9, 3600.0
"""Seconds that captures have caches. Those of the tests are from the beginning of 2026."""
_numbers = count(1)
NEWER = "2026-01-02T00:00:00Z"


@dataclass
class CapturedScene:
    """A node with captures in a namespace of its own, and the controllers on a real API server."""

    cluster: Cluster
    cosign: Cosign
    node: CaptureNode
    namespace: str
    root: Path
    keys: tuple[Path, ...] = ()
    """The public keys of the policy; that of cosign without any."""

    def generation(
        self, volume: str, family: str = "llama", base: CapturedImage | None = None, **what: object
    ) -> CapturedImage:
        """Return what the agent announces of a capture of a family, which extends an image if one is given."""
        content = self.node.capture(volume, namespace=self.namespace, **what)  # type: ignore[arg-type]
        described = content.parent / "captured.json"
        described.write_text(json.dumps(json.loads(described.read_text()) | {"family": family}))
        report = self.node.announced(volume)
        if base is None:
            return report
        digest = Reference.parse(base.image).target
        self._state(report, volume, base=digest)
        return msgspec.structs.replace(report, base=digest)

    def _state(self, report: CapturedImage, volume: str, **changes: object) -> None:
        """Attach another statement to the image, by the key of the node."""
        stated = {
            "namespace": self.namespace,
            "time": report.time,
            "contentDigest": report.content_digest,
            "hardware": Hardware(report.backend, report.arch, 0, report.driver, report.runtime, report.version).key,
            "files": [msgspec.to_builtins(each) for each in load_files(self.node.layout.captured / volume)],
            "family": report.family,
            "base": "",
        }
        signer = ImageSigner.by_key(keys.read(str(self.node.key_file), self.node.password))
        registry = Registry(self.node.config.registries)
        attest(registry, Reference.parse(report.image), PREDICATE_TYPE, stated | changes, signer)

    def capture(self, volume: str, **what: object) -> CapturedImage:
        """Let the agent's worker make the signed image of a capture; return what it announces."""
        self.node.capture(volume, namespace=self.namespace, **what)  # type: ignore[arg-type]
        return self.node.announced(volume)

    def announce(self, *captures: CapturedImage, namespace: str = "") -> None:
        """Write the status of the node's object, as its agent does."""
        value = {
            "apiVersion": "gkm.io/v1alpha1",
            "kind": "GKMCacheNode",
            "metadata": {"name": self.namespace, "namespace": namespace or self.namespace},
            "spec": {"nodeName": self.namespace},
            "status": {"captures": [msgspec.to_builtins(each) for each in captures]},
        }
        api = connect(str(self.cluster.kubeconfig))
        put(api, NODES, kube_node(self.namespace))
        put(api, GKMCACHENODES, value)

    @contextmanager
    def controllers(self, **caches: object) -> Iterator[Process]:
        """Run the controllers with these settings of `capture.caches`, under the rights that ship."""
        host = self.node.registry
        public = [str(key) for key in self.keys or (self.cosign.public_key,)]
        policy = {"images": [f"{host}/captured/*"], "keys": public, "tlog": "ignored"}
        config = {
            "verification": {"policies": [policy]},
            "registries": {"hosts": {host: {"plainHTTP": True}}},
            "capture": {
                "registry": f"{host}/captured",
                "signing": {"keyFile": str(self.node.key_file)},
                "caches": caches,
            },
        }
        path = self.root / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        words = (
            "controllers",
            f"--config={path}",
            "--health=127.0.0.1:0",
            f"--kubeconfig={self.cluster.kubeconfig_for(CONTROLLERS)}",
        )
        with operator(self.root / str(next(_numbers)), *words) as process:
            pages.wait_until_ready(process)
            yield process
            process.stop()
            assert process.popen.returncode == 0, process.tail()
            assert refused_requests(process.log.read_text(encoding="utf-8")) == []

    def cache(self, name: str, kind: str = "gkmcache") -> Json:
        """Return a cache object; {} without one."""
        return self.cluster.objects.get(kind, name, self.namespace if kind == "gkmcache" else None)

    def until_registered(self, name: str, kind: str = "gkmcache") -> Json:
        return self._until_true({"Verified", "Retained"}, name, kind)

    def until_verified(self, name: str) -> Json:
        """Wait for the verdict on a cache that a user made."""
        return self._until_true({"Verified"}, name, "gkmcache")

    def _until_true(self, types: set[str], name: str, kind: str) -> Json:
        def are_true() -> bool:
            conditions = self.cache(name, kind).get("status", {}).get("conditions", [])
            return types <= {condition["type"] for condition in conditions if condition["status"] == "True"}

        self.cluster.until(are_true, f"{name} to have {sorted(types)}")
        return self.cache(name, kind)

    def until_gone(self, name: str) -> None:
        self.cluster.until(lambda: not self.cache(name), f"{name} to end")

    def events(self, reason: str, namespace: str = "") -> list[Json]:
        return self.cluster.objects.every("events", namespace or self.namespace, fieldSelector=f"reason={reason}")

    def is_stored(self, image: str) -> bool:
        try:
            Registry(self.node.config.registries).manifest(Reference.parse(image))
        except GKMError as error:
            assert error.reason is Reason.NOT_FOUND
            return False
        return True

    def attached(self, image: str) -> int:
        """Return the number of what is attached to an image: referrers, and the tag of legacy signatures."""
        ref = Reference.parse(image)
        listed = len(Registry(self.node.config.registries).referrers(ref))
        return listed + self.is_stored(f"{ref.name}:{ref.target.replace(':', '-')}.sig")


@pytest.fixture(params=["olareg", "distribution"])
def scene(
    request: pytest.FixtureRequest, gkm_cluster: Cluster, cosign: Cosign, tmp_path: Path
) -> Iterator[CapturedScene]:
    """A namespace of its own; captures go to a real registry: one has the referrers API, the other one has not."""
    registry = str(request.getfixturevalue(request.param).host)
    namespace = f"captures-{request.param}-{next(_numbers)}"
    node = CaptureNode(tmp_path, registry, password=b"")
    shutil.copy(cosign.private_key, node.key_file)
    gkm_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    made = CapturedScene(gkm_cluster, cosign, node, namespace, tmp_path)
    yield made
    gkm_cluster.kubectl("delete", "gkmcachenodes,gkmcaches", "--all", "--namespace", namespace)
    gkm_cluster.kubectl("delete", "clustergkmcaches", "-l", f"gkm.io/captured-namespace={namespace}")
    gkm_cluster.kubectl("delete", "node", namespace, "--ignore-not-found")


def test_a_capture_becomes_a_cache_that_cosign_verifies_and_ends_with_its_image(scene: CapturedScene) -> None:
    report = scene.capture("csi-1")
    scene.announce(report)
    with scene.controllers(maxAge=LONG):
        cache = scene.until_registered(report.name)
        assert cache["spec"]["image"] == report.image
        assert cache["metadata"]["labels"]["gkm.io/captured-arch"] == "sm_90"
        assert scene.cosign.verify(cache["spec"]["image"])
        scene.cluster.until(lambda: scene.events("Registered"), "the event")
        assert scene.attached(report.image) == 3
    # The node announces it still.
    with scene.controllers(maxAge=SHORT) as process:
        scene.until_gone(report.name)
        (event,) = scene.cluster.until(lambda: scene.events("Ended"), "the event")
        assert event["message"].endswith("its image stays in the registry")
        assert scene.cosign.verify(report.image)
        assert scene.attached(report.image) == 3
        # What is announced afterwards is judged by the same process: it has not registered the old one again.
        later = scene.capture("csi-2", copies=("A" * 52,), start_time=timestamp(datetime.now(UTC)))
        scene.announce(report, later)
        scene.until_registered(later.name)
        assert scene.cache(report.name) == {}
        assert process.popen.poll() is None


def test_a_newer_capture_of_the_same_hardware_supersedes_one_that_nothing_uses(scene: CapturedScene) -> None:
    first = scene.capture("csi-1")
    second = scene.capture("csi-2", copies=("A" * 52,), start_time=NEWER)
    scene.announce(first)
    own = {
        "apiVersion": "gkm.io/v1alpha1",
        "kind": "GKMCache",
        "metadata": {"name": "mine", "namespace": scene.namespace},
        "spec": {"image": first.image},
    }
    with scene.controllers(maxAge=LONG, versions=1):
        scene.until_registered(first.name)
        scene.cluster.apply(own)
        scene.until_verified("mine")
        scene.announce(first, second)
        scene.until_registered(second.name)

        def reason() -> str:
            conditions = scene.cache(first.name).get("status", {}).get("conditions", [])
            return next((c["reason"] for c in conditions if c["type"] == "Retained"), "")

        scene.cluster.until(lambda: reason() == "NamedByCache", "the cache of a user to protect the image")
        assert scene.is_stored(first.image)
        scene.cluster.kubectl("delete", "gkmcache", "mine", "--namespace", scene.namespace)
        # Nothing else changes: another order of the announcement makes a pass come now, not in ten minutes. A pass may
        # come before the watch shows that the user's cache is gone, so that one announcement is not enough.
        orders = cycle(((second, first), (first, second)))

        def is_gone() -> bool:
            scene.announce(*next(orders))
            return not scene.cache(first.name)

        until(is_gone, f"{first.name} to end", 60, every=0.5)
        assert scene.is_stored(first.image)
        assert scene.cosign.verify(second.image)


def test_what_a_stolen_node_announces_is_refused(scene: CapturedScene) -> None:
    others = f"{scene.namespace}-others"
    scene.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": others}})
    honest = scene.capture("csi-1")
    assert others not in honest.image
    elsewhere = msgspec.structs.replace(honest, image=honest.image.replace(scene.namespace, others))
    other_hardware = msgspec.structs.replace(honest, arch="sm_100", name=honest.name.replace("sm90", "sm100"))
    scene.announce(honest, namespace=others)
    scene.announce(honest, other_hardware, elsewhere)
    with scene.controllers(maxAge=LONG):
        scene.until_registered(honest.name)
        scene.cluster.until(partial(scene.events, "NotRegistered", others), "a refusal in the other namespace")
        notes = [event["message"] for event in scene.events("NotRegistered", others)]
        assert any("NotAllowed" in note and f"captured/{others}/triton" in note for note in notes)
        scene.cluster.until(
            lambda: any("sm100" in event["message"] for event in scene.events("NotRegistered")), "the other hardware"
        )
        (note,) = (e["message"] for e in scene.events("NotRegistered") if "sm100" in e["message"])
        assert "SignatureMissing" in note
        assert scene.cluster.objects.every("gkmcaches", others) == []
        names = [each["metadata"]["name"] for each in scene.cluster.objects.every("gkmcaches", scene.namespace)]
        assert names == [honest.name]
    scene.cluster.kubectl("delete", "gkmcachenodes", "--all", "--namespace", others)


def test_only_the_controllers_mark_a_cache_as_captured(scene: CapturedScene) -> None:
    report = scene.capture("csi-1")
    scene.announce(report)
    with scene.controllers(maxAge=LONG):
        cache = scene.until_registered(report.name)
        where = ("--namespace", scene.namespace)
        forged = {
            "apiVersion": "gkm.io/v1alpha1",
            "kind": "GKMCache",
            "metadata": {"name": "forged", "namespace": scene.namespace, "labels": cache["metadata"]["labels"]},
            "spec": {"image": report.image},
        }
        with pytest.raises(KubectlFailed, match=r"writes labels and annotations gkm\.io/captured-"):
            scene.cluster.kubectl("create", "--filename=-", input=json.dumps(forged))
        changes = (
            ("label", "gkmcache", report.name, "gkm.io/captured-namespace=others", "--overwrite"),
            ("label", "gkmcache", report.name, "gkm.io/captured-namespace-"),
            ("annotate", "gkmcache", report.name, "gkm.io/captured-time=2999-01-01T00:00:00Z", "--overwrite"),
        )
        for change in changes:
            with pytest.raises(KubectlFailed, match=r"writes labels and annotations gkm\.io/captured-"):
                scene.cluster.kubectl(*change, *where)
        image = json.dumps({"spec": {"image": "registry.test/other:1"}})
        with pytest.raises(KubectlFailed, match="does not change"):
            scene.cluster.kubectl("patch", "gkmcache", report.name, "--type=merge", f"--patch={image}", *where)
        # Other labels, and the nodes, are the user's.
        scene.cluster.kubectl("label", "gkmcache", report.name, "team=a", *where)
        # Without its marks, it is a cache of the user, which retention leaves alone.
        marks = {
            part: {key: None for key in cache["metadata"][part] if key.startswith("gkm.io/captured-")}
            for part in ("labels", "annotations")
        }
        words = ("patch", "gkmcache", report.name, "--type=merge", f"--patch={json.dumps({'metadata': marks})}")
        scene.cluster.kubectl(*words, *where)
    later = scene.capture("csi-2", copies=("A" * 52,), start_time=timestamp(datetime.now(UTC)))
    scene.announce(report, later)
    with scene.controllers(maxAge=SHORT):
        scene.until_registered(later.name)
        assert scene.cache(report.name)["spec"]["image"] == report.image
        assert scene.is_stored(report.image)


def test_captures_of_shared_namespaces_are_for_the_cluster(scene: CapturedScene) -> None:
    report = scene.capture("csi-1")
    scene.announce(report)
    with scene.controllers(maxAge=LONG, clusterNamespaces=[f"{scene.namespace}*"]):
        cache = scene.until_registered(report.name, "clustergkmcache")
        assert cache["spec"]["image"] == report.image
        assert cache["metadata"]["labels"]["gkm.io/captured-namespace"] == scene.namespace
        assert scene.cache(report.name) == {}
    with scene.controllers(maxAge=SHORT):
        scene.cluster.until(lambda: not scene.cache(report.name, "clustergkmcache"), "it to end")


def numbers(scene: CapturedScene) -> dict[str, int]:
    found = scene.cluster.objects.every("gkmcaches", scene.namespace)
    return {each["metadata"]["name"]: each["spec"]["generation"] for each in found}


def is_refused(scene: CapturedScene, name: str) -> bool:
    conditions = scene.cache(name).get("status", {}).get("conditions", [])
    return any((each["type"], each["status"]) == ("Verified", "False") for each in conditions)


def test_without_a_signer_its_generations_count_no_more_and_the_next_one_extends_the_one_before(
    scene: CapturedScene,
) -> None:
    first = scene.generation("csi-1")
    kept = scene.node.key_file.read_bytes(), scene.node.password
    revoked, scene.node.password = write_key(scene.node.key_file), PASSWORD
    second = scene.generation("csi-2", base=first, copies=("A" * 52,), start_time=NEWER)
    public = scene.root / "revoked.pub"
    public.write_bytes(revoked.public.pem)
    scene.keys = (scene.cosign.public_key, public)
    scene.announce(first)
    with scene.controllers(maxAge=LONG):
        scene.until_registered(first.name)
        scene.announce(first, second)
        scene.until_registered(second.name)
        assert numbers(scene) == {first.name: 1, second.name: 2}
    scene.keys = (scene.cosign.public_key,)
    scene.node.key_file.write_bytes(kept[0])
    scene.node.password = kept[1]
    third = scene.generation("csi-3", base=first, copies=("B" * 52,), start_time=NEWER)
    with scene.controllers(maxAge=LONG, versions=1):
        scene.cluster.until(lambda: is_refused(scene, second.name), "the second generation to count no more")
        # It is one too many, and the newest verified one.
        scene.until_verified(first.name)
        scene.announce(first, second, third)
        scene.until_registered(third.name)
        # Retention may have ended the first one before the verdict about the second: it is back with another number.
        found = numbers(scene)
        assert found[third.name] == max(found.values()) >= 3


def test_a_statement_of_a_family_is_of_no_use_to_a_stolen_node_for_another_one(scene: CapturedScene) -> None:
    honest = scene.generation("csi-1")
    others = f"{scene.namespace}-others"
    scene.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": others}})
    assert honest.content_digest is not None
    stolen = msgspec.structs.replace(
        honest, family="qwen", name=member_name("qwen", honest.arch, honest.content_digest)
    )
    alone = msgspec.structs.replace(
        honest, family="", name=cache_name(honest.runtime, honest.arch, honest.content_digest)
    )
    extends = msgspec.structs.replace(honest, base=Reference.parse(honest.image).target)
    scene.announce(stolen, alone, extends)
    scene.announce(honest, namespace=others)
    with scene.controllers(maxAge=LONG):
        for name in (stolen.name, alone.name, extends.name):
            scene.cluster.until(
                lambda name=name: any(  # type: ignore[misc]
                    event["message"].startswith(f"{name}: SignatureMissing") for event in scene.events("NotRegistered")
                ),
                f"{name} to be refused",
            )
        scene.cluster.until(partial(scene.events, "NotRegistered", others), "a refusal in the other namespace")
        assert numbers(scene) == {}
        assert scene.cluster.objects.every("gkmcaches", others) == []
        scene.announce(honest)
        scene.until_registered(honest.name)
        assert numbers(scene) == {honest.name: 1}
    scene.cluster.kubectl("delete", "gkmcachenodes", "--all", "--namespace", others)
