"""The setups of the rows of `images_hostile`: each returns a function that changes a scene before the pull."""

import json
from collections.abc import Callable
from typing import Concatenate, ParamSpec

from gkm.images.manifest import OCI_MANIFEST
from support.images.archives import Member, image_of_layers, tree
from support.images.hostile_layers import INSIDE
from support.images.hostile_scene import GOOD, REPOSITORY, SECRET, USER, Scene, sigstore
from support.registry import faults
from support.registry.auth import Auth
from support.registry.faults import Fault
from support.sigstore.key_signatures import (
    Flaw,
    SigningKey,
    bundle_of,
    payload_of,
    push_bundle,
    push_legacy,
    sign_legacy,
)
from support.sigstore.keyless import Flaw as LoggedFlaw
from support.sigstore.keyless import Service

Setup = Callable[[Scene], object]
P = ParamSpec("P")


def layer(*layers: bytes) -> Setup:
    return lambda scene: scene.put(*layers)


def members(*entries: Member | tuple[str, bytes]) -> Setup:
    return layer(tree(*entries))


def labels(**stated: str) -> Setup:
    names = {f"cache.triton.image/{key.replace('_', '-')}": value for key, value in stated.items()}
    return lambda scene: scene.put(GOOD, labels=names)


def changed(**fields: object) -> Setup:
    return lambda scene: scene.put_image(image_of_layers(GOOD), **fields)


def raw(data: bytes, media_type: str = OCI_MANIFEST) -> Setup:
    return lambda scene: scene.put_manifest(data, media_type)


def spoilt(*what: Callable[[Scene], Fault]) -> Setup:
    """Store a good image, and make the registry serve it wrong."""

    def setup(scene: Scene) -> None:
        scene.put(GOOD)
        scene.real.misbehave(*(make(scene) for make in what))

    return setup


def blob(
    fault: Callable[Concatenate[str, P], Fault], *arguments: P.args, **named: P.kwargs
) -> Callable[[Scene], Fault]:
    return lambda scene: fault(f"blobs/{scene.layers[0]}", *arguments, **named)


def pinned(fault: Callable[[str], Fault]) -> Callable[[Scene], Fault]:
    return lambda scene: fault(f"manifests/{scene.digest}$")


def described(**fields: object) -> Setup:
    """Describe the layer wrong, in a signed manifest."""

    def setup(scene: Scene) -> None:
        scene.put(GOOD)
        scene.put(GOOD, layers=[scene.described()[0] | fields])

    return setup


def locked(realm: Callable[[Scene], str]) -> Setup:
    def setup(scene: Scene) -> None:
        scene.put(GOOD)
        scene.lock(Auth(USER, SECRET, realm=realm(scene)))

    return setup


def foreign(scene: Scene) -> None:
    scene.put(GOOD)
    gone = "sha256:" + "1" * 64
    kind = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"
    urls = [f"{scene.other.url}/v2/{REPOSITORY}/blobs/{gone}"]
    scene.put(GOOD, layers=[{"mediaType": kind, "digest": gone, "size": 9, "urls": urls}])
    scene.lock(Auth(USER, SECRET, bearer=False))


def redirected(scene: Scene) -> None:
    scene.put(GOOD)
    elsewhere = f"{scene.other.url}/v2/{REPOSITORY}/manifests/{scene.digest}"
    scene.real.misbehave(faults.redirected(f"manifests/{scene.digest}$", elsewhere))
    scene.lock(Auth(USER, SECRET, bearer=False))


def crowded(scene: Scene) -> None:
    scene.put_image(image_of_layers(GOOD))
    scene.real.store.repository(REPOSITORY).tags.pop(scene.digest.replace(":", "-") + ".sig")
    for number in range(70):
        subject = {"mediaType": OCI_MANIFEST, "digest": scene.digest, "size": 1}
        empty = {"mediaType": "application/vnd.oci.empty.v1+json", "digest": "sha256:" + "1" * 64, "size": 2}
        referrer = {"schemaVersion": 2, "config": empty, "layers": [], "subject": subject}
        referrer["annotations"] = {"n": str(number)}
        scene.real.store.put_manifest(REPOSITORY, referrer)


def index_in_index(scene: Scene) -> None:
    scene.put(GOOD)
    scene.put_index({"mediaType": OCI_MANIFEST, "digest": scene.digest, "size": 1})
    scene.put_index({"mediaType": OCI_MANIFEST, "digest": scene.digest, "size": 1})


def escaping(scene: Scene) -> None:
    scene.put(GOOD)
    platform = {"architecture": "\x1b[2J", "os": "linux"}
    scene.put_index({"mediaType": OCI_MANIFEST, "digest": scene.digest, "size": 1, "platform": platform})


def unsigned(flaw: Flaw, key: SigningKey | None = None) -> Setup:
    """Store an image whose only signature is wrong in one way, in both forms."""

    def setup(scene: Scene) -> None:
        scene.put(GOOD)
        sign_legacy(scene.target, scene.digest, key or scene.key, flaw)
        push_bundle(scene.target, scene.digest, bundle_of(scene.digest, key or scene.key, flaw))

    return setup


def swapped(scene: Scene) -> None:
    scene.put(GOOD)
    signature = scene.digest.replace(":", "-") + ".sig"
    tags = scene.real.store.repository(REPOSITORY).tags
    of_another = tags[signature]
    scene.put(tree((INSIDE + "evil", b"unsigned")))
    tags[scene.digest.replace(":", "-") + ".sig"] = of_another


def logged(form: str, flaw: LoggedFlaw = LoggedFlaw.OTHER_ENTRY) -> Setup:
    def setup(scene: Scene) -> None:
        scene.trusted_root = str(sigstore().write_trusted_root(scene.directory))
        scene.put(GOOD)
        scene.real.store.repository(REPOSITORY).tags.pop(scene.digest.replace(":", "-") + ".sig")
        service = Service(sigstore(), 1)
        if form == "legacy":
            payload = payload_of(scene.target, scene.digest)
            push_legacy(scene.target, scene.digest, *service.legacy(payload, scene.key, flaw))
        else:
            push_bundle(scene.target, scene.digest, service.bundle(scene.digest, scene.key, flaw))

    return setup


def zeroed(scene: Scene) -> None:
    """Attach a bundle that proves another log entry than index 0, which it states by omitting the index as Go does."""
    logged("bundle", LoggedFlaw.NONE)(scene)
    store = scene.real.store.repository(REPOSITORY)
    (digest,) = (found["digest"] for found in store.referrers(scene.digest))
    bundle = json.loads(store.blobs[json.loads(store.manifests.pop(digest).data)["layers"][0]["digest"]])
    entry = bundle["verificationMaterial"]["tlogEntries"][0]
    entry.pop("logIndex", None)
    entry.pop("inclusionPromise", None)
    entry["inclusionProof"].pop("logIndex", None)
    entry["inclusionProof"] |= {"treeSize": "1000003", "hashes": []}
    push_bundle(scene.target, scene.digest, bundle)
