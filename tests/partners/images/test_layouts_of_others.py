"""Layouts with an image and its signatures, in the forms of regctl, oras and cosign: GKM pushes them, cosign verifies.

Real cosign signs and saves. The files of regctl 0.11 and oras 1.3 are made here as those write them.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gkm.api.config import Policy
from gkm.images.archives.layout_store import LayoutStore
from gkm.images.local_image import LocalImage
from gkm.images.local_reference import LocalReference
from gkm.images.reference import Reference
from gkm.images.registries import push
from gkm.images.signatures.signature_formats import SignatureForm
from support.images.layouts import copied
from support.images.matrix import verdict_on
from support.registry.clients import plain_client
from support.registry.olareg import Olareg
from support.registry.push import Target
from support.registry.store import OCI_INDEX, OCI_MANIFEST, digest_of
from support.sigstore.cosign import PLAIN, Cosign

BOTH = {SignatureForm.BUNDLE, SignatureForm.LEGACY}


@pytest.fixture
def origin(olareg: Olareg, built: LocalImage, cosign: Cosign) -> Reference:
    """An image that cosign signed in both forms."""
    ref = Reference.parse(f"{olareg.host}/origin/signed:1")
    pinned = ref.pinned(push.image(plain_client(ref.registry), ref, built))
    target = Target(olareg.host, ref.repository)
    if target.get(f"manifests/{pinned.tag_of_digest('.sig').tag}")[0] != 200:
        cosign.sign(str(pinned))
        cosign.sign_legacy(str(pinned))
    return pinned


class Copy:
    """A layout that holds what the registry has."""

    def __init__(self, layout: Path, origin: Reference) -> None:
        self.layout, self.origin = layout, Target(origin.registry, origin.repository)
        self.digest = origin.target
        (layout / "blobs" / "sha256").mkdir(parents=True)
        (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')

    def manifest(self, reference: str) -> dict[str, Any]:
        """Copy a manifest and its blobs; return its descriptor."""
        raw = self.origin.get(f"manifests/{reference}")[1]
        manifest = json.loads(raw)
        for blob in (manifest["config"], *manifest["layers"]):
            self.store(self.origin.get(f"blobs/{blob['digest']}")[1], blob["mediaType"])
        return self.store(raw, OCI_MANIFEST)

    def store(self, data: bytes, media_type: str) -> dict[str, Any]:
        digest = digest_of(data)
        (self.layout / "blobs" / "sha256" / digest.partition(":")[2]).write_bytes(data)
        return {"mediaType": media_type, "digest": digest, "size": len(data)}

    @property
    def referrers(self) -> list[dict[str, Any]]:
        """The descriptors that the registry lists, whose content is copied."""
        listed = json.loads(self.origin.get(f"referrers/{self.digest}")[1])["manifests"]
        for each in listed:
            self.manifest(each["digest"])
        return list(listed)

    def index(self, *manifests: dict[str, Any]) -> None:
        index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests}
        (self.layout / "index.json").write_text(json.dumps(index))

    def named(self, descriptor: dict[str, Any], name: str) -> dict[str, Any]:
        return descriptor | {"annotations": {"org.opencontainers.image.ref.name": name}}


@pytest.fixture
def copy(origin: Reference, tmp_path: Path) -> Copy:
    return Copy(tmp_path / "layout", origin)


def by_regctl(copy: Copy) -> None:
    """`regctl image copy --referrers --digest-tags REF ocidir://DIR:1`."""
    tag = copy.digest.replace(":", "-")
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": copy.referrers}
    copy.index(
        copy.named(copy.store(json.dumps(index).encode(), OCI_INDEX), tag),
        copy.named(copy.manifest(f"{tag}.sig"), f"{tag}.sig"),
        copy.named(copy.manifest(copy.digest), "1"),
    )


def by_oras(copy: Copy) -> None:
    """`oras cp -r REF --to-oci-layout DIR:1`, which leaves out the tag of legacy signatures."""
    copy.index(copy.named(copy.manifest(copy.digest), "1"), *copy.referrers)


@pytest.mark.parametrize(
    ("write", "forms"), [(by_regctl, BOTH), (by_oras, {SignatureForm.BUNDLE})], ids=["regctl", "oras"]
)
def test_signatures_in_a_layout_count_after_a_push(
    copy: Copy, host: str, cosign: Cosign, write: Callable[[Copy], None], forms: set[SignatureForm]
) -> None:
    write(copy)
    assert pushed_forms(copy.layout, f"{host}/copies/{write.__name__}:1", cosign) == forms


@pytest.mark.parametrize("command", ["cosign", "cosign2"])
def test_the_legacy_signatures_that_cosign_saves_count_after_a_push(
    origin: Reference, host: str, cosign: Cosign, command: str, tmp_path: Path
) -> None:
    """`cosign save` lists no bundle in the layout, also where its files are there."""
    Cosign(cosign.directory, command).run("save", *PLAIN, "--dir", str(tmp_path / "saved"), str(origin))
    found = pushed_forms(tmp_path / "saved", f"{host}/copies/saved-{command}:1", cosign)
    assert found == {SignatureForm.LEGACY}


def pushed_forms(layout: Path, reference: str, cosign: Cosign) -> set[SignatureForm]:
    """Push a layout; return the forms of the signatures of cosign's key that GKM verifies there, as cosign does."""
    ref = Reference.parse(reference)
    origin = LocalReference("oci", str(layout))
    pinned = ref.pinned(copied(LayoutStore(layout), origin, plain_client(ref.registry), ref))
    verdict = verdict_on(str(pinned), Policy([str(cosign.public_key)]))
    assert verdict.verified, verdict.message
    # With the option for bundles, cosign reads legacy signatures of an image that has no bundle.
    assert verifies(cosign, pinned, bundle=True)
    forms = {finding.form for finding in verdict.findings if finding.ok}
    assert verifies(cosign, pinned, bundle=False) is (SignatureForm.LEGACY in forms)
    return forms


def verifies(cosign: Cosign, ref: Reference, *, bundle: bool) -> bool:
    who = ["--key", str(cosign.public_key), "--insecure-ignore-tlog=true", "--trusted-root", str(cosign.trusted_root)]
    return cosign.accepts(str(ref), who, bundle=bundle)
