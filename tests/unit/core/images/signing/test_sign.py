"""Signing by key, against a registry in this process, with and without the referrers API."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from gkm.api.config import Policy, Registries, RegistryHost, Verification
from gkm.api.errors import GKMError, Reason
from gkm.api.policies import RequiredAttestation
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry as RegistryClient
from gkm.images.signatures.attestations import attestations
from gkm.images.signatures.discovery import find_signatures
from gkm.images.signatures.signature_formats import SignatureForm
from gkm.images.signatures.verify import Verdict, Verifier
from gkm.images.signing import sign, store
from gkm.images.signing.forms import ImageSigner
from gkm.images.signing.keys import PrivateKey
from gkm.images.signing.sign import SignedImage
from msgspec import ValidationError, convert
from support.images.cache_registry import client_of
from support.images.matrix import LAYER
from support.images.signers import private_key
from support.registry import faults
from support.registry.faults import Answer, Fault
from support.registry.push import Target
from support.registry.server import Registry
from support.registry.store import OCI_INDEX
from support.sigstore.key_signatures import SigningKey, sign_bundle, sign_legacy

WRITES = frozenset({"POST", "PUT"})


@pytest.fixture(params=[True, False], ids=["referrers", "fallback tag"])
def real(request: pytest.FixtureRequest) -> Iterator[Registry]:
    with Registry.start(referrers=request.param) as registry:
        yield registry


class Place:
    """An unsigned image in a registry."""

    def __init__(self, real: Registry, name: str = "team/cache") -> None:
        self.real = real
        self.target = Target(real.host, name)
        self.client = client_of(real)
        self.ref = Reference.parse(f"{self.target}@{self.target.image([(b'layer', LAYER)])}")

    def sign(self, key: PrivateKey) -> SignedImage:
        return sign.sign(self.client, self.ref, ImageSigner.by_key(key))

    def verdict(self, *by: PrivateKey) -> Verdict:
        policy = Policy([key.public.pem.decode() for key in by], require="all")
        return Verifier(Verification(policies=[policy])).verify(client_of(self.real), self.ref, None)

    def forms(self) -> list[SignatureForm]:
        return [signature.form for signature in find_signatures(self.client, self.ref).signatures]

    @property
    def tag(self) -> str:
        return self.ref.target.replace(":", "-") + ".sig"


@pytest.fixture
def place(real: Registry) -> Place:
    return Place(real)


def test_an_image_is_signed_in_both_forms_and_the_result_has_their_references(place: Place) -> None:
    key = private_key()
    signed = place.sign(key)
    assert place.verdict(key).verified
    assert place.forms() == [SignatureForm.BUNDLE, SignatureForm.LEGACY]
    assert (signed.digest, signed.form) == (place.ref.target, "legacy+bundle-v0.3")
    assert signed.stored[SignatureForm.LEGACY] == f"{place.target}:{place.tag}"
    referrer = Reference.parse(signed.stored[SignatureForm.BUNDLE])
    subject = place.client.manifest(referrer).image().subject
    assert subject is not None
    assert subject.digest == place.ref.target


def test_signing_again_writes_nothing(place: Place) -> None:
    key = private_key()
    first = place.sign(key)
    place.real.requests.clear()
    assert first.added == {SignatureForm.BUNDLE, SignatureForm.LEGACY}
    assert place.sign(key) == replace(first, added=set())
    assert [request.method for request in place.real.requests if request.method in WRITES] == []


def test_a_second_key_leaves_the_signatures_of_the_first(place: Place) -> None:
    first, second = private_key(), private_key("ed25519")
    place.sign(first)
    place.sign(second)
    assert place.verdict(first, second).verified
    assert sorted(place.forms()) == [SignatureForm.BUNDLE] * 2 + [SignatureForm.LEGACY] * 2


def test_layers_of_others_in_the_legacy_tag_stay_unchanged(place: Place) -> None:
    theirs = SigningKey()
    sign_legacy(place.target, place.ref.target, theirs)
    manifest = json.loads(place.target.get(f"manifests/{place.tag}")[1])
    manifest["layers"][0]["annotations"]["their.own"] = "note"
    manifest["layers"].append({**place.target.blob(b"no signature", "text/plain"), "their": ["field"]})
    place.target.manifest(json.dumps(manifest).encode(), place.tag)
    place.sign(private_key())
    layers = json.loads(place.target.get(f"manifests/{place.tag}")[1])["layers"]
    assert layers[:2] == manifest["layers"]
    assert len(layers) == 3


def test_entries_of_others_in_the_fallback_tag_stay_unchanged() -> None:
    with Registry.start(referrers=False) as real:
        place = Place(real)
        sign_bundle(place.target, place.ref.target, SigningKey())
        tag = place.ref.target.replace(":", "-")
        index = json.loads(place.target.get(f"manifests/{tag}")[1])
        index["manifests"][0]["annotations"] = {"their.own": "note"}
        place.target.manifest(json.dumps(index).encode(), tag, OCI_INDEX)
        place.sign(private_key())
        listed = json.loads(place.target.get(f"manifests/{tag}")[1])["manifests"]
        assert listed[0] == index["manifests"][0]
        assert len(listed) == 2


def test_with_the_referrers_api_no_fallback_tag_is_written() -> None:
    with Registry.start() as real:
        place = Place(real)
        place.sign(private_key())
        tag = place.ref.target.replace(":", "-")
        assert place.target.get(f"manifests/{tag}")[0] == 404


def test_a_signature_that_another_signer_overwrites_is_written_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "STALE_SECONDS", 0.1)
    mine, theirs = private_key(), SigningKey()
    sign_legacy(place.target, place.ref.target, theirs)
    lost = place.target.get(f"manifests/{place.tag}")[1]

    def overwritten(answer: Answer) -> Answer:
        place.target.manifest(lost, place.tag)
        return answer

    place.real.misbehave(Fault(rf"manifests/{place.tag}", overwritten, frozenset({"PUT"}), times=1))
    place.sign(mine)
    place.real.behave()
    signatures = find_signatures(place.client, place.ref).signatures
    legacy = [each for each in signatures if each.form is SignatureForm.LEGACY]
    assert [mine.public.verifies(each.signature, each.signed) for each in legacy] == [False, True]


def test_a_statement_that_follows_a_signature_keeps_it_behind_a_cache(place: Place) -> None:
    """`attest` read an index that a cache had from before `sign`, and wrote it with the statement alone."""
    index = place.ref.target.replace(":", "-")
    place.real.misbehave(faults.cached(rf"manifests/{index}$", 0.5), faults.cached(rf"manifests/{place.tag}$", 0.5))
    key = private_key()
    place.sign(key)
    signer = ImageSigner.by_key(key)
    sign.attest(place.client, place.ref, "https://statement.test/v1", {"a": 1}, signer)
    sign.attest(place.client, place.ref, "https://statement.test/v2", {"a": 1}, signer)
    place.real.behave()
    assert place.verdict(key).verified
    assert sorted(place.forms()) == [SignatureForm.BUNDLE] * 3 + [SignatureForm.LEGACY]
    for version in ("v1", "v2"):
        assert len(attestations(place.client, place.ref, f"https://statement.test/{version}")) == 1


def test_a_signer_that_is_always_overwritten_gets_an_error(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "STALE_SECONDS", 0.1)
    sign_legacy(place.target, place.ref.target, SigningKey())
    lost = place.target.get(f"manifests/{place.tag}")[1]
    writing: list[bool] = []

    def overwritten(answer: Answer) -> Answer:
        if not writing:  # our own request passes here too
            writing.append(True)
            place.target.manifest(lost, place.tag)
            writing.clear()
        return answer

    place.real.misbehave(Fault(rf"manifests/{place.tag}", overwritten, frozenset({"PUT"})))
    with pytest.raises(GKMError, match="others write at the same time; sign again"):
        place.sign(private_key())


@pytest.mark.parametrize("writes", range(10))
def test_signing_can_be_repeated_after_an_interruption_at_any_write(place: Place, writes: int) -> None:
    key = private_key()
    gone = Fault("", lambda _: Answer(403, {}, b""), WRITES, skip=writes)
    place.real.misbehave(gone)
    try:
        place.sign(key)
        cut_off = False
    except GKMError as error:
        assert error.reason is Reason.UNAUTHORIZED
        cut_off = True
    assert cut_off or writes >= 8  # that was all
    place.real.behave()
    assert place.verdict(key).reason in (Reason.COSIGN_SUCCESS, Reason.SIGNATURE_MISSING)
    place.sign(key)
    assert place.verdict(key).verified
    assert place.forms() == [SignatureForm.BUNDLE, SignatureForm.LEGACY]


def test_a_full_tag_is_not_written_and_the_bundle_is_stored(place: Place) -> None:
    theirs = place.target.blob(b"{}", "text/plain")
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": place.target.blob(b"{}"),
        "layers": [theirs] * 64,
    }
    place.target.manifest(json.dumps(manifest).encode(), place.tag)
    key = private_key()
    signed = place.sign(key)
    assert "would hold 65 signatures" in str(signed.missing[SignatureForm.LEGACY])
    assert signed.missing[SignatureForm.LEGACY].reason is Reason.TOO_LARGE
    assert len(json.loads(place.target.get(f"manifests/{place.tag}")[1])["layers"]) == 64
    assert place.verdict(key).verified


def test_a_tag_with_other_content_is_not_overwritten(place: Place) -> None:
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}
    place.target.manifest(json.dumps(index).encode(), place.tag, OCI_INDEX)
    signed = place.sign(private_key())
    assert signed.missing[SignatureForm.LEGACY].reason is Reason.METADATA_INVALID
    assert f"{place.tag} holds no signatures" in str(signed.missing[SignatureForm.LEGACY])
    assert list(signed.stored) == [SignatureForm.BUNDLE]
    assert json.loads(place.target.get(f"manifests/{place.tag}")[1]) == index


def test_a_fallback_tag_that_names_an_image_is_not_overwritten() -> None:
    """`cosign copy` names an image by its digest, which is also the tag of its referrers."""
    # distribution-spec 1.1, "Pushing Manifests with Subject": a client reports another manifest than an index.
    with Registry.start(referrers=False) as real:
        place = Place(real)
        image = place.target.get(f"manifests/{place.ref.target}")[1]
        index = place.ref.target.replace(":", "-")
        place.target.manifest(image, index)
        signed = place.sign(private_key())
        assert place.target.get(f"manifests/{index}")[1] == image, "the tag of the image was overwritten"
        assert signed.missing[SignatureForm.BUNDLE].reason is Reason.METADATA_INVALID
        assert f"{index} holds no signatures" in str(signed.missing[SignatureForm.BUNDLE])
        assert list(signed.stored) == [SignatureForm.LEGACY]


@pytest.mark.parametrize("status", [400, 403, 405, 409, 412, 422])
def test_a_second_signer_gets_a_bundle_where_tags_are_immutable(status: int) -> None:
    with Registry.start() as real:
        place = Place(real)
        real.routes.refusal_to_change = status
        first, second = private_key(), private_key("ed25519")
        assert place.sign(first).missing == {}
        signed = place.sign(second)
        assert signed.form == "bundle-v0.3"
        obstacle = signed.missing[SignatureForm.LEGACY]
        assert obstacle.reason is Reason.NOT_ALLOWED
        assert f"does not change the tag {place.target}:{place.tag}, which exists" in str(obstacle)
        assert place.verdict(first, second).verified
        real.requests.clear()
        assert place.sign(second).stored == signed.stored  # its bundle is not stored again
        assert real.seen("PUT", "manifests/sha256:") == []


def test_a_second_signer_gets_an_error_where_tags_are_immutable_and_referrers_need_one() -> None:
    with Registry.start(referrers=False) as real:
        place = Place(real)
        real.routes.refusal_to_change = 409
        place.sign(private_key())
        with pytest.raises(GKMError, match=rf"does not change the tag {place.target}:{place.tag}") as caught:
            place.sign(private_key())
        assert caught.value.reason is Reason.NOT_ALLOWED
        index = place.ref.target.replace(":", "-")
        signer = ImageSigner.by_key(private_key())
        with pytest.raises(GKMError, match=rf"does not change the tag {place.target}:{index}, "):
            sign.attest(place.client, place.ref, "https://statement.test/v1", {}, signer)


def test_a_refusal_to_create_the_tag_is_no_immutable_tag(place: Place) -> None:
    place.real.misbehave(Fault(rf"manifests/{place.tag}$", lambda _: Answer(403, {}, b""), frozenset({"PUT"})))
    place.real.requests.clear()
    with pytest.raises(GKMError, match="the registry answers 403") as caught:
        place.sign(private_key())
    assert caught.value.reason is Reason.UNAUTHORIZED
    assert place.real.seen("PUT", "manifests/sha256:") == []


def test_a_signature_is_listed_when_signing_ends_behind_a_cache() -> None:
    with Registry.start() as real:
        place = Place(real)
        real.misbehave(faults.cached(r"referrers/", 0.5))
        signed = place.sign(private_key())
        referrer = signed.stored[SignatureForm.BUNDLE].partition("@")[2]
        assert [each.digest for each in place.client.referrers(place.ref)] == [referrer]


def test_a_registry_that_never_lists_a_bundle_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "STALE_SECONDS", 0.1)
    with Registry.start() as real:
        place = Place(real)
        real.misbehave(faults.cached(r"referrers/", 3600.0))
        with pytest.raises(GKMError, match="does not list it as a referrer") as caught:
            place.sign(private_key())
        assert caught.value.reason is Reason.REGISTRY_UNAVAILABLE
        signer = ImageSigner.by_key(private_key())
        with pytest.raises(GKMError, match="does not list it as a referrer"):
            sign.attest(place.client, place.ref, "https://statement.test/v1", {}, signer)


def test_a_missing_image_is_not_signed(place: Place) -> None:
    place.ref = place.ref.pinned("sha256:" + "0" * 64)
    with pytest.raises(GKMError) as caught:
        place.sign(private_key())
    assert caught.value.reason is Reason.NOT_FOUND
    assert place.real.seen("PUT", place.tag) == []


def test_nothing_is_written_to_a_registry_that_denies_reading(place: Place) -> None:
    sign_legacy(place.target, place.ref.target, SigningKey())
    place.real.misbehave(faults.status(place.tag, 503))
    place.real.requests.clear()
    with pytest.raises(GKMError) as caught:
        place.sign(private_key())
    assert caught.value.reason is Reason.REGISTRY_UNAVAILABLE
    assert [request.method for request in place.real.requests if request.method in WRITES] == []


def test_an_index_can_be_signed(place: Place) -> None:
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}
    digest = place.target.manifest(json.dumps(index).encode(), "index", OCI_INDEX)["digest"]
    place.ref = place.ref.pinned(digest)
    key = private_key()
    place.sign(key)
    assert place.verdict(key).verified


def test_signing_a_tag_signs_the_digest_that_it_names(place: Place) -> None:
    key = private_key()
    place.target.manifest(place.target.get(f"manifests/{place.ref.target}")[1], "v1")
    signed = sign.sign(place.client, place.ref.tagged("v1"), ImageSigner.by_key(key))
    assert signed.digest == place.ref.target
    assert place.verdict(key).verified


def test_the_legacy_tag_has_the_name_that_cosign_uses(place: Place) -> None:
    assert place.ref.tag_of_digest(".sig").tag == place.tag


def test_a_signature_and_a_statement_in_another_repository(place: Place) -> None:
    key, elsewhere = private_key(), f"{place.real.host}/team/signatures"
    kind = "https://statement.test/v1"
    signer = ImageSigner.by_key(key)
    first = sign.sign(place.client, place.ref, signer, elsewhere)
    stated = sign.attest(place.client, place.ref, kind, {"a": 1}, signer, repository=elsewhere)
    for stored in (*first.stored.values(), stated):
        assert stored.startswith(elsewhere)
    assert sign.sign(place.client, place.ref, signer, elsewhere) == replace(first, added=set())
    assert sign.attest(place.client, place.ref, kind, {"a": 1}, signer, repository=elsewhere) == stated
    pem, needs = key.public.pem.decode(), [RequiredAttestation(kind)]
    there = Policy([pem], attestations=needs, signature_repository=elsewhere)
    for policies, verified in (([there], True), ([Policy([pem])], False), ([there, Policy([pem])], False)):
        verifier = Verifier(Verification(policies=policies))
        assert verifier.verify(place.client, place.ref, None).verified is verified
    sign.sign(place.client, place.ref, signer)
    both = Verification(policies=[there, Policy([pem])])
    assert Verifier(both).verify(place.client, place.ref, None).verified


def test_a_repository_for_signatures_that_is_not_allowed_is_not_read(place: Place) -> None:
    key = private_key()
    policy = Policy([key.public.pem.decode()], signature_repository="other.example/team/signatures")
    client = RegistryClient(Registries(allow=[place.ref.name], hosts={place.real.host: RegistryHost(plain_http=True)}))
    verdict = Verifier(Verification(policies=[policy])).verify(client, place.ref, None)
    assert (verdict.verified, verdict.reason) == (False, Reason.NOT_ALLOWED)
    assert "other.example/team/signatures" in verdict.message


@pytest.mark.parametrize(
    "name", ["https://a.example/b", "a.example/b:tag", "a.example", "a.example/b@sha256:0", " a/b"]
)
def test_a_policy_names_a_repository_without_a_tag(name: str) -> None:
    policy = {"keys": ["-----BEGIN"], "signatureRepository": name}
    with pytest.raises(ValidationError, match="signatureRepository"):
        convert(policy, Policy)
