"""Attestations that a policy requires: signer, subject, type and rules, in both forms of cosign."""

import json
from collections.abc import Callable, Sequence

import pytest
from gkm.api.errors import Reason
from gkm.api.policies import Policy, PredicateRule, RequiredAttestation, Verification
from gkm.images.signatures import attestations as reading
from gkm.images.signatures import required_attestations
from gkm.images.signatures.verify import Verdict, Verifier
from gkm.images.signing import sign
from gkm.images.signing.forms import ImageSigner
from gkm.images.signing.sign import attest as attest_image
from support.images.cache_registry import Site
from support.images.signers import private_key
from support.registry import faults
from support.registry.push import Target
from support.registry.store import OCI_INDEX, OCI_MANIFEST
from support.sigstore.attestations import PROVENANCE, attach, attach_legacy, statement
from support.sigstore.key_signatures import OTHER_DIGEST, SigningKey, sign_bundle, sign_legacy

KEY, STRANGER = SigningKey(), SigningKey()
SPDX = "https://spdx.dev/Document"
OURS = {"runDetails": {"builder": {"id": "https://builds.test/ours"}}}
THEIRS = {"runDetails": {"builder": {"id": "https://builds.test/theirs"}}}
RULE = PredicateRule("predicate.runDetails.builder.id == 'https://builds.test/ours'", "built by us")
Attach = Callable[[Target, str, bytes, SigningKey], None]
both_forms = pytest.mark.parametrize(
    "attest",
    [attach, lambda target, digest, payload, key: attach_legacy(target, digest, [payload], key)],
    ids=["bundle", "legacy"],
)


@pytest.fixture
def signed(site: Site) -> Site:
    sign_bundle(target(site), site.ref.target, KEY)
    return site


def target(site: Site) -> Target:
    return Target(site.real.host, site.ref.repository)


def required(*rules: PredicateRule, kind: str = PROVENANCE) -> RequiredAttestation:
    return RequiredAttestation(kind, list(rules))


def verdict(site: Site, *wanted: RequiredAttestation, mode: str = "enforce") -> Verdict:
    policy = Policy(keys=[KEY.public_pem.decode()], attestations=list(wanted))
    config = Verification(mode=mode, policies=[policy])  # type: ignore[arg-type]
    return Verifier(config).verify(site.client, site.ref, "team")


def refused(site: Site, *wanted: RequiredAttestation) -> str:
    """Return the message of a refusal for an attestation."""
    found = verdict(site, *(wanted or (required(RULE),)))
    assert (found.verified, found.allowed, found.reason) == (False, False, Reason.ATTESTATION_MISSING)
    return found.message


def test_an_image_without_the_attestation_is_refused_by_its_type(signed: Site) -> None:
    found = verdict(signed, required(RULE))
    assert (found.verified, found.reason) == (False, Reason.ATTESTATION_MISSING)
    assert f"needs an attestation {PROVENANCE} (policies[0] for *); no such attestation was found" in found.message


def test_the_mode_warn_allows_an_image_without_the_attestation(signed: Site) -> None:
    found = verdict(signed, required(), mode="warn")
    assert (found.verified, found.allowed) == (False, True)


@both_forms
@pytest.mark.parametrize("version", ["v1", "v0.1"])
def test_an_attestation_that_satisfies_every_rule_counts(signed: Site, attest: Attach, version: str) -> None:
    attest(target(signed), signed.ref.target, statement(signed.ref.target, OURS, version=version), KEY)
    found = verdict(signed, required(RULE, PredicateRule("has(predicate.runDetails)")))
    assert (found.verified, found.reason) == (True, Reason.COSIGN_SUCCESS)
    assert [(each.predicate_type, each.ok) for each in found.attestations] == [(PROVENANCE, True)]


def test_an_attestation_is_no_signature(site: Site) -> None:
    attach(target(site), site.ref.target, statement(site.ref.target, OURS), KEY)
    found = verdict(site, required(RULE))
    assert (found.verified, found.reason) == (False, Reason.SIGNATURE_INVALID)


@both_forms
def test_an_attestation_by_another_key_does_not_count(signed: Site, attest: Attach) -> None:
    attest(target(signed), signed.ref.target, statement(signed.ref.target, OURS), STRANGER)
    assert "was not made by a trusted key" in refused(signed)


@both_forms
def test_an_attestation_of_another_image_does_not_count(signed: Site, attest: Attach) -> None:
    attest(target(signed), signed.ref.target, statement(OTHER_DIGEST, OURS), KEY)
    assert "it signs another image" in refused(signed)


@both_forms
def test_a_false_rule_is_named_by_its_message(signed: Site, attest: Attach) -> None:
    attest(target(signed), signed.ref.target, statement(signed.ref.target, THEIRS), KEY)
    assert "attestation: rule 2 (built by us) is false" in refused(signed, required(PredicateRule("true"), RULE))


@both_forms
def test_another_type_does_not_count(signed: Site, attest: Attach) -> None:
    payload = statement(signed.ref.target, OURS, kind="https://slsa.dev/provenance/v0.2")
    attest(target(signed), signed.ref.target, payload, KEY)
    assert PROVENANCE in refused(signed)


def test_a_referrer_that_states_the_type_of_its_statement_falsely_does_not_count(signed: Site) -> None:
    payload = statement(signed.ref.target, OURS, kind=SPDX)
    attach(target(signed), signed.ref.target, payload, KEY, stated=PROVENANCE)
    assert f"it states '{SPDX}', not '{PROVENANCE}'" in refused(signed)


def test_one_of_two_attestations_suffices_but_no_two_together(signed: Site) -> None:
    place, digest = target(signed), signed.ref.target
    both = required(PredicateRule("has(predicate.a)"), PredicateRule("has(predicate.b)"))
    attach(place, digest, statement(digest, {"a": 1}), KEY)
    attach(place, digest, statement(digest, {"b": 1}), KEY)
    assert refused(signed, both).count("attestation: rule ") == 2
    attach(place, digest, statement(digest, {"a": 1, "b": 1}), KEY)
    assert verdict(signed, both).verified


def test_every_required_type_must_be_there(signed: Site) -> None:
    place, digest = target(signed), signed.ref.target
    attach(place, digest, statement(digest, OURS), KEY)
    wanted = (required(RULE), required(kind=SPDX))
    assert f"needs an attestation {SPDX}" in refused(signed, *wanted)
    attach_legacy(place, digest, [statement(digest, {"spdxVersion": "SPDX-2.3"}, kind=SPDX)], KEY)
    found = verdict(signed, *wanted)
    assert found.verified
    assert found.message.endswith(f"and has the attestations {PROVENANCE}, {SPDX}")


def test_every_policy_has_its_own_attestations(signed: Site) -> None:
    attach(target(signed), signed.ref.target, statement(signed.ref.target, OURS), KEY)
    key = KEY.public_pem.decode()
    policies = [Policy(keys=[key]), Policy(keys=[key], attestations=[required(kind=SPDX)])]
    found = Verifier(Verification(policies=policies)).verify(signed.client, signed.ref, "team")
    assert "(policies[1] for *)" in found.message
    assert not found.verified


def test_the_manifest_states_the_type_if_the_list_of_referrers_does_not(signed: Site) -> None:
    def silent(answer: bytes) -> bytes:
        index = json.loads(answer)
        for entry in index["manifests"]:
            del entry["annotations"]
        return json.dumps(index).encode()

    attach(target(signed), signed.ref.target, statement(signed.ref.target, OURS), KEY)
    signed.real.misbehave(faults.tampered(f"referrers/{signed.ref.target}", silent))
    assert verdict(signed, required(RULE)).verified


@pytest.mark.parametrize("path", ["referrers/", ".att"])
def test_a_registry_that_does_not_answer_leaves_the_verdict_open(site: Site, path: str) -> None:
    sign_legacy(target(site), site.ref.target, KEY)
    site.real.misbehave(faults.status(path, 503))
    assert verdict(site).verified
    found = verdict(site, required(RULE))
    assert (found.verified, found.reason) == (None, Reason.REGISTRY_UNAVAILABLE)


@pytest.mark.parametrize("path", ["referrers/", ".att"])
def test_an_attestation_counts_although_other_places_cannot_be_read(site: Site, path: str) -> None:
    place, digest = target(site), site.ref.target
    sign_legacy(place, digest, KEY)
    attach(place, digest, statement(digest, OURS), KEY)
    attach_legacy(place, digest, [statement(digest, OURS)], KEY)
    site.real.misbehave(faults.status(path, 503))
    assert verdict(site, required(RULE)).verified


def test_a_machine_that_cannot_run_rules_leaves_the_verdict_open(signed: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    attach(target(signed), signed.ref.target, statement(signed.ref.target, OURS), KEY)
    monkeypatch.setattr(required_attestations, "_PROGRAM", ("/does/not/exist",))
    found = verdict(signed, required(RULE))
    assert (found.verified, found.allowed, found.reason) == (None, False, Reason.NODE_ERROR)


def test_only_a_bounded_number_of_attestations_is_read(signed: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_READ", 3)
    for number in range(5):
        attach(target(signed), signed.ref.target, statement(signed.ref.target, {"n": number}), STRANGER)
    message = refused(signed)
    assert message.count("was not made by a trusted key") == 3
    assert "5 are attached, only the first 3 were read" in message


def test_the_bytes_of_all_attestations_are_bounded(signed: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        attach(target(signed), signed.ref.target, statement(signed.ref.target, {"n": number}), STRANGER)
    monkeypatch.setattr(reading, "MAX_READ_BYTES", 1000)
    assert refused(signed).count("the attestations of the image before it have nearly") == 2


@pytest.mark.parametrize("kind", ["index", "large"])
def test_what_is_malformed_in_the_tag_is_a_refusal_and_hides_nothing(signed: Site, kind: str) -> None:
    place, digest = target(signed), signed.ref.target
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}
    content = {"index": index, "large": {**index, "annotations": {"x": "y" * (2 << 20)}}}
    place.manifest(content[kind], digest.replace(":", "-") + ".att")
    assert "legacy attestation: " in refused(signed, required(RULE), required(kind=SPDX))
    attach(place, digest, statement(digest, OURS), KEY)
    assert verdict(signed, required(RULE)).verified


def test_referrers_that_cannot_be_listed_hide_no_attestation_in_the_tag(signed: Site) -> None:
    place, digest = target(signed), signed.ref.target
    sign_legacy(place, digest, KEY)
    attach_legacy(place, digest, [statement(digest, OURS)], KEY)
    entry = {"mediaType": OCI_MANIFEST, "size": 1, "digest": OTHER_DIGEST}
    many = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [entry] * 5000}).encode()
    signed.real.misbehave(faults.tampered(f"referrers/{digest}", lambda _: many))
    assert verdict(signed, required(RULE)).verified
    assert "artifacts that are read" in refused(signed, required(kind=SPDX))


def test_a_bill_of_materials_is_attached_once(site: Site) -> None:
    key = ImageSigner.by_key(private_key())
    predicate = {"packages": [{"SPDXID": f"p{number}", "name": f"n{number}"} for number in range(3000)]}
    first, second = (attest_image(site.client, site.ref, SPDX, predicate, key) for _ in range(2))
    assert first == second


def rules_run(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return a list that grows with each predicate that rules run on."""
    seen: list[bytes] = []
    real = required_attestations.violation

    def violation(rules: Sequence[PredicateRule], payload: bytes, until: float) -> str:
        seen.append(payload)
        return real(rules, payload, until)

    monkeypatch.setattr(required_attestations, "violation", violation)
    return seen


def test_rules_never_run_on_the_predicate_of_a_stranger(signed: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    attach(target(signed), signed.ref.target, statement(signed.ref.target, OURS), STRANGER)
    attach(target(signed), signed.ref.target, statement(OTHER_DIGEST, OURS), KEY)
    seen = rules_run(monkeypatch)
    refused(signed)
    assert seen == []


def test_a_large_statement_is_attached_once_and_counts(site: Site) -> None:
    key = private_key()
    sign.sign(site.client, site.ref, ImageSigner.by_key(key))
    predicate = {"files": ["x" * 1000] * 1000}
    first, second = (
        attest_image(site.client, site.ref, PROVENANCE, predicate, ImageSigner.by_key(key)) for _ in range(2)
    )
    assert first == second
    rule = PredicateRule("size(predicate.files) == 1000")
    policy = Policy(keys=[key.public.pem.decode()], attestations=[required(rule)])
    assert Verifier(Verification(policies=[policy])).verify(site.patient().client, site.ref, None).verified
