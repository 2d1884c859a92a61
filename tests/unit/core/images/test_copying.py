"""Copies between registries and layouts: the signatures of the image count at the target."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from gkm.api.config import Policy, Verification
from gkm.api.errors import GKMError, Reason
from gkm.images import copying
from gkm.images.archives.layout_store import LayoutStore
from gkm.images.archives.local_source import ArchiveSource
from gkm.images.copying import ImageCopy
from gkm.images.image_store import ImageSource, ImageStore, find
from gkm.images.local_image import LocalImage
from gkm.images.local_reference import LocalReference
from gkm.images.manifest import OCI_INDEX, OCI_MANIFEST
from gkm.images.reference import Reference
from gkm.images.registries import push
from gkm.images.signatures.signature_formats import SignatureForm
from gkm.images.signatures.verify import Verdict, Verifier
from gkm.images.signing import sign, store
from gkm.images.signing.forms import ImageSigner
from gkm.images.signing.keys import PrivateKey
from support.images.archives import MCV_ARCHIVE, cache_image
from support.images.cache_registry import client_of
from support.images.layouts import artifact, copied, listed
from support.images.signers import private_key
from support.registry import faults
from support.registry.push import Target
from support.registry.server import Registry

KEY = private_key()
PREDICATE = "https://example.com/predicate/v1"


@pytest.fixture(params=[True, False], ids=["referrers", "fallback tag"])
def real(request: pytest.FixtureRequest) -> Iterator[Registry]:
    with Registry.start(referrers=request.param) as registry:
        yield registry


@pytest.fixture(scope="module")
def image() -> LocalImage:
    return cache_image()


@pytest.fixture(scope="module")
def layout(image: LocalImage, tmp_path_factory: pytest.TempPathFactory) -> LocalReference:
    """An image in a layout, signed there in both forms, with an attestation."""
    ref = LocalReference("oci", str(tmp_path_factory.mktemp("origin") / "layout"), "1")
    place, signer = LayoutStore(ref.path), ImageSigner.by_key(KEY)
    pinned = ref.pinned(push.image(place, ref, image))
    sign.sign(place, pinned, signer)
    sign.attest(place, pinned, PREDICATE, {"a": 1}, signer)
    return ref


def to_registry(real: Registry, layout: LocalReference, name: str = "team/copy:1") -> Reference:
    ref = Reference.parse(f"{real.host}/{name}")
    return ref.pinned(copied(LayoutStore(layout.path), layout, client_of(real), ref))


def verdict(place: ImageSource, ref: Reference, *keys: PrivateKey) -> Verdict:
    policy = Policy([key.public.pem.decode() for key in keys], require="all")
    return Verifier(Verification(policies=[policy])).verify(place, ref, None)


def forms_of(verdict: Verdict) -> list[SignatureForm]:
    return [each.form for each in verdict.findings if each.ok]


BOTH = [SignatureForm.BUNDLE, SignatureForm.LEGACY]


def test_an_image_in_a_layout_is_signed_and_verified_there(layout: LocalReference, image: LocalImage) -> None:
    found = verdict(LayoutStore(layout.path), layout.pinned(image.digest), KEY)
    assert (found.verified, forms_of(found)) == (True, BOTH)


def test_a_signature_made_in_a_layout_names_no_path(layout: LocalReference, image: LocalImage) -> None:
    place = LayoutStore(layout.path)
    (payload,) = place.manifest(layout.pinned(image.digest).tag_of_digest(".sig")).image().layers
    assert layout.repository.encode() not in place.small_blob(layout, payload, 1 << 20)


def test_the_signatures_of_a_layout_count_in_the_registry(
    real: Registry, layout: LocalReference, image: LocalImage
) -> None:
    ref = to_registry(real, layout)
    assert ref.digest == image.digest
    found = verdict(client_of(real), ref, KEY)
    assert (found.verified, forms_of(found)) == (True, BOTH)


def test_what_a_registry_has_goes_through_a_layout_to_another_registry(
    real: Registry, layout: LocalReference, tmp_path: Path
) -> None:
    first = to_registry(real, layout)
    between = LocalReference("oci", str(tmp_path / "between"), "carried")
    with Registry.start() as other:
        copied(client_of(real), first, LayoutStore(between.path), between)
        second = to_registry(other, between)
        found = verdict(client_of(other), second, KEY)
        attached = copying.attached(client_of(other), second)
    assert (found.verified, forms_of(found)) == (True, BOTH)
    assert [each.manifest.digest for each in attached] == [
        each.manifest.digest for each in copying.attached(client_of(real), first)
    ]
    assert len(attached) == 3


def test_an_artifact_about_an_artifact_is_copied(real: Registry, image: LocalImage, tmp_path: Path) -> None:
    ref = LocalReference("oci", str(tmp_path / "layout"), "1")
    push.image(LayoutStore(ref.path), ref, image)
    first = listed(ref.path, artifact(ref.path, image.digest))
    second = listed(ref.path, artifact(ref.path, first))
    pinned = to_registry(real, ref)
    found = copying.attached(client_of(real), pinned)
    assert [(each.manifest.digest, each.subject) for each in found] == [(first, image.digest), (second, first)]


def test_a_referrer_that_is_an_index_is_copied_with_its_images(
    real: Registry, layout: LocalReference, image: LocalImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy ended with an error at its end: OCI 1.1 allows a subject in an index, and its config was read."""
    pinned = to_registry(real, layout)
    target = Target(real.host, "team/copy")
    inner = target.image([(b"a model", "text/plain")])
    child = {"mediaType": OCI_MANIFEST, "digest": inner, "size": len(target.get(f"manifests/{inner}")[1])}
    subject = {"mediaType": image.media_type, "digest": image.digest, "size": len(image.manifest)}
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "artifactType": "application/x-set", "manifests": [child]}
    outer = target.manifest(index | {"subject": subject, "annotations": {"a": "b"}}, media_type=OCI_INDEX)["digest"]
    there = LocalReference("oci", str(tmp_path / "there"), "1")
    copied(client_of(real), pinned, LayoutStore(there.path), there)
    assert LayoutStore(there.path).resolve(LocalReference("oci", there.repository)) == image.digest
    with Registry.start() as other:
        second = to_registry(other, there)
        found = {each.digest: each for each in client_of(other).referrers(second)}
        (layer,) = client_of(other).manifest(second.pinned(inner)).image().layers
        content = client_of(other).small_blob(second, layer, 100)
    assert outer in found, "the layout does not list the index as a referrer"
    assert found[outer].artifact_type == "application/x-set"
    assert content == b"a model"
    monkeypatch.setattr(copying, "MAX_IMAGES", 0)
    with pytest.raises(GKMError, match="is, or has attached, an index of more than the 0 images"):
        to_registry(real, there, "team/bounded:1")


def test_an_index_is_copied_with_its_images_and_their_signatures(
    real: Registry, layout: LocalReference, image: LocalImage, tmp_path: Path
) -> None:
    ref = Reference.parse(f"{real.host}/team/index:1")
    to_registry(real, layout, "team/index:image")
    child = {"mediaType": image.media_type, "digest": image.digest, "size": len(image.manifest)}
    raw = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [child]}).encode()
    push.manifest(client_of(real), ref, raw, OCI_INDEX)
    there = LocalReference("oci", str(tmp_path / "index"), "all")
    digest = copied(client_of(real), ref, LayoutStore(there.path), there)
    place = LayoutStore(there.path)
    assert place.manifest(there).raw == raw
    assert place.resolve(LocalReference("oci", str(tmp_path / "index"))) == digest
    assert verdict(place, there.pinned(image.digest), KEY).verified


def test_an_index_of_indexes_is_copied_to_its_last_image(
    real: Registry, layout: LocalReference, image: LocalImage, tmp_path: Path
) -> None:
    """The images of the inner index were left out, and the copy said that it was whole."""
    ref, client = Reference.parse(f"{real.host}/team/index:1"), client_of(real)
    to_registry(real, layout, "team/index:image")
    child = {"mediaType": image.media_type, "digest": image.digest, "size": len(image.manifest)}
    for tag in ("inner", "1"):
        raw = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [child]}).encode()
        digest = push.manifest(client, ref.tagged(tag), raw, OCI_INDEX)
        child = {"mediaType": OCI_INDEX, "digest": digest, "size": len(raw)}
    there = LocalReference("oci", str(tmp_path / "index"), "all")
    copied(client, ref, LayoutStore(there.path), there)
    found = find(LayoutStore(there.path), there.pinned(image.digest))
    assert found is not None, "the image of the inner index was left out"
    assert verdict(LayoutStore(there.path), there.pinned(image.digest), KEY).verified


def test_the_tag_names_the_image_when_its_signatures_are_stored(
    real: Registry, layout: LocalReference, image: LocalImage
) -> None:
    real.misbehave(faults.status(rf"manifests/{image.digest.replace(':', '-')}.sig", 503))
    with pytest.raises(GKMError, match="answers 503") as caught:
        to_registry(real, layout)
    assert caught.value.reason is Reason.REGISTRY_UNAVAILABLE
    real.behave()
    assert Target(real.host, "team/copy").get("manifests/1")[0] == 404
    real.requests.clear()
    to_registry(real, layout)
    assert Target(real.host, "team/copy").get("manifests/1")[0] == 200
    assert not real.seen("PUT", "blobs/uploads")  # what the first run sent is there


def test_copying_again_stores_nothing_twice_and_signatures_of_others_stay(
    real: Registry, layout: LocalReference
) -> None:
    ref, other = to_registry(real, layout), private_key()
    sign.sign(client_of(real), ref, ImageSigner.by_key(other))
    for _ in range(2):
        to_registry(real, layout)
    found = verdict(client_of(real), ref, KEY, other)
    assert found.verified
    assert sorted(forms_of(found)) == [SignatureForm.BUNDLE] * 2 + [SignatureForm.LEGACY] * 2


def test_signatures_are_added_to_those_of_the_registry(
    real: Registry, layout: LocalReference, image: LocalImage
) -> None:
    other, ref = private_key(), Reference.parse(f"{real.host}/team/copy:1")
    sign.sign(client_of(real), ref.pinned(push.image(client_of(real), ref, image)), ImageSigner.by_key(other))
    assert verdict(client_of(real), to_registry(real, layout), KEY, other).verified


def test_a_tag_without_space_for_the_signatures_is_an_error(
    real: Registry, layout: LocalReference, image: LocalImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = Reference.parse(f"{real.host}/team/copy:1")
    pinned = ref.pinned(push.image(client_of(real), ref, image))
    sign.sign(client_of(real), pinned, ImageSigner.by_key(private_key()))
    monkeypatch.setattr(store, "MAX_LAYERS", 1)
    with pytest.raises(GKMError, match="would hold 2 signatures") as caught:
        to_registry(real, layout)
    assert caught.value.reason is Reason.TOO_LARGE


def test_a_referrer_that_the_registry_does_not_list_is_an_error(
    layout: LocalReference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "STALE_SECONDS", 0.1)
    with Registry.start() as real:
        real.misbehave(faults.status("referrers/", 200, headers={"Content-Type": "application/json"}))
        with pytest.raises(GKMError, match="does not list it as a referrer") as caught:
            to_registry(real, layout)
        assert caught.value.reason is Reason.REGISTRY_UNAVAILABLE


def test_blobs_are_mounted_from_another_repository_of_the_registry(layout: LocalReference) -> None:
    with Registry.start() as real:
        first = to_registry(real, layout)
        real.requests.clear()
        ref = Reference.parse(f"{real.host}/team/second:1")
        copied(client_of(real), first, client_of(real), ref)
        assert not real.seen("PUT", "/v2/team/second/blobs/uploads")
        assert not real.seen("GET", "/v2/team/copy/blobs/")
        assert verdict(client_of(real), ref.pinned(first.target), KEY).verified


def test_wrong_bytes_of_the_source_reach_no_target(layout: LocalReference, image: LocalImage, tmp_path: Path) -> None:
    with Registry.start() as real:
        ref = to_registry(real, layout)
        layer = image.blobs[1].descriptor.digest
        blobs = real.store.repository("team/copy").blobs
        blobs[layer] = bytes(len(blobs[layer]))
        target = LocalReference("oci", str(tmp_path / "target"), "1")
        with pytest.raises(GKMError, match="was changed or is damaged") as caught:
            copied(client_of(real), ref, LayoutStore(target.path), target)
        assert caught.value.reason is Reason.DIGEST_MISMATCH
    assert not (tmp_path / "target" / "blobs" / "sha256" / layer.removeprefix("sha256:")).exists()


def test_artifacts_without_end_are_refused(
    real: Registry, layout: LocalReference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "MAX_ARTIFACTS", 2)
    with pytest.raises(GKMError, match="more than 2 artifacts are attached") as caught:
        to_registry(real, layout)
    assert caught.value.reason is Reason.TOO_LARGE


def test_a_docker_archive_is_copied_as_the_image_that_push_makes_of_it(real: Registry, tmp_path: Path) -> None:
    origin, ref = LocalReference("docker-archive", str(MCV_ARCHIVE)), Reference.parse(f"{real.host}/team/mcv:1")
    source, client = ArchiveSource(MCV_ARCHIVE, tmp_path, None), client_of(real)
    digest = copied(source, origin, client, ref)
    described = client.manifest(ref.pinned(digest)).image()
    assert source.manifest(origin.pinned(digest)).image() == described
    assert source.referrers(origin.pinned(digest)) == []


def test_work_files_are_removed(layout: LocalReference) -> None:
    place: ImageStore = LayoutStore(layout.path)
    with Registry.start() as real, tempfile.TemporaryDirectory() as work:
        ref = Reference.parse(f"{real.host}/team/copy:1")
        pinned = layout.pinned(place.resolve(layout))
        ImageCopy(place, pinned, pinned, client_of(real), ref, Path(work)).run()
        assert list(Path(work).iterdir()) == []
