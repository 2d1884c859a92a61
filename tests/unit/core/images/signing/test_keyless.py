"""Keyless signing, and signing with a log, against a local Sigstore."""

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from gkm.api.config import Identity, Policy, Verification
from gkm.api.errors import GKMError, Reason
from gkm.api.policies import PredicateRule, RequiredAttestation
from gkm.images.reference import Reference
from gkm.images.registries.transport import TransportLimits
from gkm.images.signatures.attestations import attestations
from gkm.images.signatures.bundles import LogEntry
from gkm.images.signatures.discovery import find_signatures
from gkm.images.signatures.rekor import ENTRIES, Rekor
from gkm.images.signatures.signature_formats import SignatureForm
from gkm.images.signatures.sigstore_services import SigstoreService
from gkm.images.signatures.verify import Verdict, Verifier
from gkm.images.signing import keyless, sign
from gkm.images.signing.forms import ImageSigner
from msgspec.structs import replace as replace_struct
from support.images.cache_registry import client_of
from support.images.matrix import LAYER
from support.images.signers import private_key
from support.registry.push import Target
from support.registry.server import Registry
from support.sigstore.http_services import SigstoreServer, token
from support.sigstore.keyless import Person
from support.sigstore.services import Sigstore

ALICE, BOB = Person(), Person("bob@example.test")
CERTIFICATES = "/api/v2/signingCert"
LIMITS = TransportLimits(connect=10.0, stall=10.0, request=10.0, pause=0.01)
IMPATIENT = TransportLimits(connect=0.5, stall=0.3, request=0.5, pause=0.01)


class Place:
    """An unsigned image, and a Sigstore with its trusted root in a file."""

    def __init__(self, real: Registry, server: SigstoreServer, directory: Path) -> None:
        self.real, self.server = real, server
        self.client = client_of(real)
        target = Target(real.host, "team/cache")
        self.ref = Reference.parse(f"{target}@{target.image([(b'layer', LAYER)])}")
        self.root = str(server.sigstore.write_trusted_root(directory))
        self.service = SigstoreService("Rekor", server.url, limits=LIMITS)
        self.log = Rekor(self.service)

    def signer(self, person: Person = ALICE) -> ImageSigner:
        return keyless.signer(self.authority(self.server.url), self.root, token(person), self.log)

    def authority(self, url: str, limits: TransportLimits = LIMITS) -> SigstoreService:
        return SigstoreService("Fulcio", url, limits=limits)

    def refused(self, url: str = "", limits: TransportLimits = LIMITS) -> GKMError:
        with pytest.raises(GKMError) as caught:
            keyless.signer(self.authority(url or self.server.url, limits), self.root, token(ALICE), self.log)
        assert token(ALICE) not in str(caught.value)
        return caught.value

    def not_signed(self, signer: ImageSigner) -> GKMError:
        with pytest.raises(GKMError) as caught:
            sign.sign(self.client, self.ref, signer)
        assert find_signatures(self.client, self.ref).signatures == []
        return caught.value

    def verdict(self, policy: Policy) -> Verdict:
        return Verifier(Verification(policies=[policy])).verify(self.client, self.ref, None)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Registry.start() as real, SigstoreServer.start(Sigstore()) as server:
        yield Place(real, server, tmp_path)


def test_both_forms_name_the_holder_of_the_token(place: Place) -> None:
    sign.sign(place.client, place.ref, place.signer())
    named = Identity(ALICE.issuer, ALICE.subject)
    verdict = place.verdict(Policy(identities=[named], trusted_root=place.root))
    assert verdict.verified
    assert [(each.form, each.ok, each.signer.identity) for each in verdict.findings] == [
        (SignatureForm.BUNDLE, True, ALICE.subject),
        (SignatureForm.LEGACY, True, ALICE.subject),
    ]


def test_the_same_person_signs_once_and_another_beside(place: Place) -> None:
    for person in (ALICE, ALICE, BOB):
        sign.sign(place.client, place.ref, place.signer(person))
    both = [Identity(person.issuer, person.subject) for person in (ALICE, BOB)]
    verdict = place.verdict(Policy(identities=both, require="all", trusted_root=place.root))
    assert verdict.verified
    assert len(verdict.findings) == 4


def test_a_logged_signature_replaces_one_of_the_same_key_without_a_log_entry(place: Place) -> None:
    key = private_key()
    sign.sign(place.client, place.ref, ImageSigner.by_key(key))
    logged = Policy([key.public.pem.decode()], tlog="required", trusted_root=place.root)
    assert place.verdict(logged).verified is False
    for _ in range(2):
        sign.sign(place.client, place.ref, ImageSigner.by_key(key, place.log, place.root))
    assert place.verdict(logged).verified
    assert [each.form for each in find_signatures(place.client, place.ref).signatures].count(SignatureForm.LEGACY) == 1


@pytest.mark.parametrize(
    ("answer", "reason", "says"),
    [
        ((401, b"{}"), Reason.UNAUTHORIZED, "fresh token"),
        ((400, b'{"message":"bad token"}'), Reason.UNAUTHORIZED, "fresh token"),
        ((503, b""), Reason.REGISTRY_UNAVAILABLE, "Fulcio at"),
        ((418, b""), Reason.REGISTRY_UNAVAILABLE, "answers 418"),
        ((200, b"<html>"), Reason.METADATA_INVALID, "sends no certificates"),
        ((200, b"[" * 100_000), Reason.METADATA_INVALID, "sends no certificates"),
        (
            (200, b'{"signedCertificateEmbeddedSct":{"chain":{"certificates":["-----BEGIN"]}}}'),
            Reason.METADATA_INVALID,
            "sends no certificates",
        ),
        ((200, b" " * ((1 << 20) + 1)), Reason.TOO_LARGE, "Fulcio at"),
    ],
    ids=["401", "400", "503", "418", "html", "deep", "no certificate", "long"],
)
def test_an_invalid_response_of_fulcio_is_reported(
    place: Place, answer: tuple[int, bytes], reason: Reason, says: str
) -> None:
    place.server.fixed[CERTIFICATES] = answer
    error = place.refused()
    assert error.reason is reason
    assert says in str(error)


def test_a_certificate_for_another_key_is_not_used(place: Place) -> None:
    fulcio = place.server.sigstore.fulcio
    key = private_key().key.public_key()
    leaf = fulcio.issue(key, [ALICE.name], ALICE.issuer)  # type: ignore[arg-type]  # a P-256 key
    chain = [leaf.public_bytes(serialization.Encoding.PEM).decode()]
    document = {"signedCertificateEmbeddedSct": {"chain": {"certificates": chain}}}
    place.server.fixed[CERTIFICATES] = (200, json.dumps(document).encode())
    assert "for another key" in str(place.refused())


def test_a_certificate_of_another_sigstore_is_not_used(place: Place, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    place.root = str(Sigstore().write_trusted_root(other))
    error = place.refused()
    assert error.reason is Reason.SIGNATURE_INVALID
    assert "no trusted authority issued" in str(error)


def test_a_silent_service_times_out(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        error = place.refused(f"http://127.0.0.1:{silent.getsockname()[1]}", IMPATIENT)
    assert error.reason is Reason.REGISTRY_UNAVAILABLE


@pytest.mark.parametrize("text", ["", " ", "a b.c", "two\nlines", "ä.b.c", "x" * (65 << 10)])
def test_an_invalid_token_is_not_sent(place: Place, text: str) -> None:
    with pytest.raises(GKMError, match="token is malformed") as caught:
        keyless.signer(place.authority("http://127.0.0.1:9"), place.root, text, place.log)
    assert caught.value.reason is Reason.UNAUTHORIZED


@pytest.mark.parametrize("url", ["", "fulcio", "ftp://host", "https://", "https://u@host", "http://[", "http://h:x"])
def test_an_invalid_address_of_a_service_is_refused(url: str) -> None:
    with pytest.raises(GKMError) as caught:
        SigstoreService("Fulcio", url)
    assert caught.value.reason is Reason.INVALID_REFERENCE


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((400, b"{}"), "answers 400"),
        ((201, b"{}"), "0 entries instead of one"),
        ((201, b"null"), "cannot be read"),
        ((409, b"{}"), "answers 409"),
    ],
    ids=["400", "nothing", "null", "conflict without address"],
)
def test_an_invalid_response_of_the_log_is_reported_and_nothing_is_stored(
    place: Place, answer: tuple[int, bytes], says: str
) -> None:
    place.server.fixed[ENTRIES] = answer
    assert says in str(place.not_signed(place.signer()))


def test_an_entry_is_fetched_again_after_a_lost_response(place: Place) -> None:
    key = private_key()
    signature = key.sign(b"data")
    first, second = (place.log.add_hashedrekord(b"data", signature, key.public.pem) for _ in range(2))
    assert first == second


class _OtherEntry(Rekor):
    """A log that returns a valid entry of another signature."""

    def add_hashedrekord(self, data: bytes, signature: bytes, verifier: bytes) -> LogEntry:
        del data, signature, verifier
        key = private_key()
        return super().add_hashedrekord(b"other", key.sign(b"other"), key.public.pem)


def test_an_entry_of_another_signature_is_detected_and_nothing_is_stored(place: Place) -> None:
    error = place.not_signed(replace(place.signer(), log=_OtherEntry(place.service)))
    assert error.reason is Reason.SIGNATURE_INVALID
    assert "about another signature" in str(error)


def test_a_statement_of_the_same_identity_is_attached_once_though_each_signer_has_a_new_certificate(
    place: Place,
) -> None:
    kind = "https://statement.test/v1"

    def attested(person: Person) -> str:
        return sign.attest(place.client, place.ref, kind, {"a": 1}, place.signer(person))

    assert attested(ALICE) == attested(ALICE) != attested(BOB)
    assert len(attestations(place.client, place.ref, kind)) == 2


def test_an_attestation_counts_by_an_identity_that_the_policy_names(place: Place) -> None:
    kind = "https://statement.test/v1"
    sign.sign(place.client, place.ref, place.signer())
    required = RequiredAttestation(kind, [PredicateRule("predicate.a == 1")])
    policy = Policy(
        identities=[Identity(ALICE.issuer, ALICE.subject)], trusted_root=place.root, attestations=[required]
    )
    sign.attest(place.client, place.ref, kind, {"a": 1}, place.signer(BOB))
    refused = place.verdict(policy)
    assert refused.reason is Reason.ATTESTATION_MISSING
    assert f"it was made by {BOB.subject} of {BOB.issuer}, whom the policy does not name" in refused.message
    sign.attest(place.client, place.ref, kind, {"a": 1}, place.signer())
    found = place.verdict(policy)
    assert [(each.ok, each.signer.identity) for each in found.attestations] == [(True, ALICE.subject)]
    assert found.verified


def test_an_attestation_by_key_needs_a_log_entry_if_the_policy_requires_one(place: Place) -> None:
    kind, key = "https://statement.test/v1", private_key()
    logged = ImageSigner.by_key(key, place.log, place.root)
    sign.sign(place.client, place.ref, logged)
    policy = replace_struct(logged.policy, attestations=[RequiredAttestation(kind)])
    sign.attest(place.client, place.ref, kind, {"a": 1}, ImageSigner.by_key(key))
    assert "it has no log entry, and the policy requires one" in place.verdict(policy).message
    sign.attest(place.client, place.ref, kind, {"a": 1}, logged)
    assert place.verdict(policy).verified
