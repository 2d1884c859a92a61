from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from gkm.api.config import Policy, Verification
from gkm.api.errors import GKMError, Reason
from gkm.images.registries import push
from gkm.images.signatures import keys
from gkm.images.signatures.verify import Verdict, Verifier
from support.images.cache_registry import Site
from support.registry import faults
from support.registry.push import Target
from support.sigstore.key_signatures import Flaw, SigningKey, attach_legacy, sign_bundle, sign_legacy

Sign = Callable[[Target, str, SigningKey, Flaw], str]
KEY = SigningKey()
BY_KEY = Policy(keys=[KEY.public_pem.decode()])
both_forms = pytest.mark.parametrize("sign", [sign_legacy, sign_bundle, attach_legacy])


def target(site: Site) -> Target:
    return Target(site.real.host, site.ref.repository)


def verdict(site: Site, *policies: Policy, mode: str = "enforce", namespace: str | None = "team") -> Verdict:
    config = Verification(mode=mode, policies=list(policies or [BY_KEY]))  # type: ignore[arg-type]
    return Verifier(config).verify(site.client, site.ref, namespace)


@both_forms
def test_a_signature_by_the_right_key_is_accepted(site: Site, sign: Sign) -> None:
    sign(target(site), site.ref.target, KEY, Flaw.NONE)
    answer = verdict(site)
    assert (answer.verified, answer.allowed, answer.reason) == (True, True, Reason.COSIGN_SUCCESS)


@both_forms
@pytest.mark.parametrize("flaw", [flaw for flaw in Flaw if flaw is not Flaw.NONE])
def test_a_signature_with_one_flaw_is_refused_with_the_findings(site: Site, sign: Sign, flaw: Flaw) -> None:
    sign(target(site), site.ref.target, KEY, flaw)
    answer = verdict(site)
    assert (answer.verified, answer.allowed, answer.reason) == (False, False, Reason.SIGNATURE_INVALID)
    assert "needs a signature by key" in answer.message
    assert "signature: it" in answer.message


@both_forms
def test_an_invalid_signature_beside_a_valid_one_does_no_harm(site: Site, sign: Sign) -> None:
    sign_bundle(target(site), site.ref.target, KEY, Flaw.WRONG_KEY)
    sign(target(site), site.ref.target, KEY, Flaw.NONE)
    assert verdict(site).verified


def test_an_unsigned_image_is_refused(site: Site) -> None:
    answer = verdict(site)
    assert (answer.verified, answer.allowed, answer.reason) == (False, False, Reason.SIGNATURE_MISSING)
    assert "no signature was found" in answer.message


@both_forms
def test_the_signature_of_another_image_attached_to_this_one_is_refused(site: Site, sign: Sign) -> None:
    sign(target(site), site.ref.target, KEY, Flaw.OTHER_SUBJECT)
    assert "it signs another image" in verdict(site).message


def test_a_referrer_that_names_another_image_as_its_subject_is_refused(site: Site) -> None:
    other = site.ref.tagged("other")
    digest = push.manifest(site.client, other, site.image.manifest + b" ", site.image.media_type)
    sign_bundle(target(site), digest, KEY, Flaw.NONE)
    listed = msgspec.json.encode({"schemaVersion": 2, "manifests": site.client.referrers(site.ref.pinned(digest))})
    site.real.misbehave(faults.tampered(f"referrers/{site.ref.target}", lambda _: listed))
    assert "attached to another image" in verdict(site).message


def test_without_the_referrers_api_the_fallback_tag_is_read(site_without_referrers: Site) -> None:
    sign_bundle(target(site_without_referrers), site_without_referrers.ref.target, KEY, Flaw.NONE)
    assert verdict(site_without_referrers).verified


def test_a_registry_that_fails_leaves_the_verdict_open(site: Site) -> None:
    sign_bundle(target(site), site.ref.target, KEY, Flaw.NONE)
    site.real.misbehave(faults.status("referrers/", 503))
    answer = verdict(site)
    assert (answer.verified, answer.allowed, answer.reason) == (None, False, Reason.REGISTRY_UNAVAILABLE)


def test_an_open_verdict_has_the_pause_that_the_registry_requested(site: Site) -> None:
    site.real.misbehave(faults.status("referrers/", 429, headers={"Retry-After": "90"}))
    assert verdict(site).retry_after == 90.0


def test_the_mode_warn_allows_an_unsigned_image_with_a_warning(site: Site) -> None:
    answer = verdict(site, mode="warn")
    assert (answer.verified, answer.allowed, answer.reason) == (False, True, Reason.SIGNATURE_MISSING)
    assert "only warns" in answer.message


def test_the_mode_off_sends_no_request(site: Site) -> None:
    site.real.requests.clear()
    answer = verdict(site, mode="off")
    assert (answer.verified, answer.allowed, answer.reason) == (None, True, Reason.NOT_REQUIRED)
    assert site.real.requests == []


def test_the_default_configuration_accepts_nothing(site: Site) -> None:
    sign_bundle(target(site), site.ref.target, KEY, Flaw.NONE)
    answer = Verifier(Verification()).verify(site.client, site.ref, "team")
    assert (answer.verified, answer.allowed) == (False, False)
    assert "no verification policy covers" in answer.message


def test_all_keys_must_have_signed_if_the_policy_requires_all(site: Site) -> None:
    second = SigningKey()
    policy = Policy(keys=[KEY.public_pem.decode(), second.public_pem.decode()], require="all")
    sign_bundle(target(site), site.ref.target, KEY, Flaw.NONE)
    assert verdict(site, policy).verified is False
    sign_bundle(target(site), site.ref.target, second, Flaw.NONE)
    assert verdict(site, policy).verified is True


@pytest.mark.parametrize(
    ("policy", "namespace", "covered"),
    [
        (Policy(keys=BY_KEY.keys, images=["registry.example/*"]), "team", False),
        (Policy(keys=BY_KEY.keys, images=["127.0.0.1:*/team/*"]), "team", True),
        (Policy(keys=BY_KEY.keys, namespaces=["team", "other-*"]), "other-1", True),
        (Policy(keys=BY_KEY.keys, namespaces=["team"]), "mine", False),
        (Policy(keys=BY_KEY.keys, namespaces=["*"]), None, False),
        (Policy(keys=BY_KEY.keys), None, True),
    ],
)
def test_a_policy_covers_its_images_and_namespaces_only(
    site: Site,
    policy: Policy,
    namespace: str | None,
    covered: bool,  # noqa: FBT001 -- a column of the table
) -> None:
    sign_bundle(target(site), site.ref.target, KEY, Flaw.NONE)
    assert verdict(site, policy, namespace=namespace).verified is covered


def test_a_key_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "cosign.pub"
    path.write_bytes(KEY.public_pem)
    assert keys.load(str(path)).key_id == KEY.hint


def _weak_rsa() -> str:
    key = rsa.generate_private_key(65537, 1024).public_key()  # noqa: S505 -- the weakness is the point
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()


@pytest.mark.parametrize("text", ["/nowhere/cosign.pub", "-----BEGIN PUBLIC KEY-----\nxx\n", _weak_rsa()])
def test_a_key_that_cannot_be_trusted_is_refused(text: str) -> None:
    with pytest.raises(GKMError) as caught:
        keys.load(text)
    assert caught.value.reason is Reason.SIGNATURE_INVALID


def test_a_policy_with_an_unusable_key_refuses_with_the_reason(site: Site) -> None:
    answer = verdict(site, Policy(keys=["/nowhere/cosign.pub"]))
    assert (answer.verified, answer.allowed) == (False, False)
    assert "cannot be read" in answer.message
