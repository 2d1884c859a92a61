"""An image and the artifacts that a layout holds beside it, pushed to a registry in this process."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from gkm.api.config import Policy, Verification
from gkm.api.errors import GKMError, Reason
from gkm.images.local_image import AttachedArtifact, LocalBlob, LocalImage
from gkm.images.manifest import Descriptor
from gkm.images.reference import Reference
from gkm.images.signatures.signature_formats import SignatureForm
from gkm.images.signatures.verify import Verdict, Verifier
from gkm.images.signing import attached, sign, store
from gkm.images.signing.forms import ImageSigner
from gkm.images.signing.keys import PrivateKey
from support.images.archives import cache_image
from support.images.cache_registry import client_of
from support.images.signers import private_key
from support.registry import faults
from support.registry.push import Target
from support.registry.server import Registry

KEY = private_key()


@pytest.fixture(params=[True, False], ids=["referrers", "fallback tag"])
def real(request: pytest.FixtureRequest) -> Iterator[Registry]:
    with Registry.start(referrers=request.param) as registry:
        yield registry


@pytest.fixture(scope="module")
def signed() -> LocalImage:
    """An image with its signature in both forms beside it, as a copy from a registry."""
    image = cache_image()
    with Registry.start() as origin:
        client, ref = client_of(origin), Reference.parse(f"{origin.host}/team/origin:1")
        attached.push_image(client, ref, image, lambda _done, _of: None)
        stored = sign.sign(client, ref, ImageSigner.by_key(KEY)).stored
        signature, bundle = (copied(Target(origin.host, "team/origin"), stored[form]) for form in SignatureForm)
    return replace(
        image, attached=(AttachedArtifact(bundle, image.digest), AttachedArtifact(signature, image.digest, ".sig"))
    )


def copied(target: Target, reference: str) -> LocalImage:
    raw = target.get(f"manifests/{Reference.parse(reference).target}")[1]
    manifest = json.loads(raw)
    blobs = []
    for part in (manifest["config"], *manifest["layers"]):
        data = target.get(f"blobs/{part['digest']}")[1]
        blobs.append(LocalBlob(Descriptor(part["mediaType"], part["digest"], part["size"]), data))
    return LocalImage(raw, manifest["mediaType"], tuple(blobs), {})


def push(real: Registry, image: LocalImage) -> Reference:
    ref = Reference.parse(f"{real.host}/team/copy:1")
    return ref.pinned(attached.push_image(client_of(real), ref, image, lambda _done, _of: None))


def verdict(real: Registry, ref: Reference, *keys: PrivateKey) -> Verdict:
    policy = Policy([key.public.pem.decode() for key in keys], require="all")
    return Verifier(Verification(policies=[policy])).verify(client_of(real), ref, None)


def forms_of(verdict: Verdict) -> list[SignatureForm]:
    return [each.form for each in verdict.findings if each.ok]


def test_the_signatures_of_a_layout_count_in_the_registry(real: Registry, signed: LocalImage) -> None:
    ref = push(real, signed)
    assert ref.digest == signed.digest
    found = verdict(real, ref, KEY)
    assert (found.verified, forms_of(found)) == (True, [SignatureForm.BUNDLE, SignatureForm.LEGACY])


def test_the_tag_names_the_image_when_its_signatures_are_stored(real: Registry, signed: LocalImage) -> None:
    real.misbehave(faults.status(rf"manifests/{signed.digest.replace(':', '-')}.sig", 503))
    with pytest.raises(GKMError, match="answers 503") as caught:
        push(real, signed)
    assert caught.value.reason is Reason.REGISTRY_UNAVAILABLE
    real.behave()
    assert Target(real.host, "team/copy").get("manifests/1")[0] == 404
    push(real, signed)
    assert Target(real.host, "team/copy").get("manifests/1")[0] == 200


def test_pushing_again_stores_nothing_twice_and_signatures_of_others_stay(real: Registry, signed: LocalImage) -> None:
    ref, other = push(real, signed), private_key()
    sign.sign(client_of(real), ref, ImageSigner.by_key(other))
    for _ in range(2):
        push(real, signed)
    found = verdict(real, ref, KEY, other)
    assert found.verified
    assert sorted(forms_of(found)) == [SignatureForm.BUNDLE] * 2 + [SignatureForm.LEGACY] * 2


def test_signatures_of_a_layout_are_added_to_those_of_the_registry(real: Registry, signed: LocalImage) -> None:
    other = private_key()
    ref = push(real, replace(signed, attached=()))
    sign.sign(client_of(real), ref, ImageSigner.by_key(other))
    push(real, signed)
    assert verdict(real, ref, KEY, other).verified


def test_a_tag_without_space_for_the_signatures_of_a_layout_is_an_error(
    real: Registry, signed: LocalImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = push(real, replace(signed, attached=()))
    sign.sign(client_of(real), ref, ImageSigner.by_key(private_key()))
    monkeypatch.setattr(store, "MAX_LAYERS", 1)
    with pytest.raises(GKMError, match="would hold 2 signatures") as caught:
        push(real, signed)
    assert caught.value.reason is Reason.TOO_LARGE


def test_a_referrer_that_the_registry_does_not_list_is_an_error(
    signed: LocalImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "STALE_SECONDS", 0.1)
    with Registry.start() as real:
        real.misbehave(faults.status("referrers/", 200, headers={"Content-Type": "application/json"}))
        with pytest.raises(GKMError, match="does not list it as a referrer") as caught:
            push(real, signed)
        assert caught.value.reason is Reason.REGISTRY_UNAVAILABLE
