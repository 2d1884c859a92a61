"""Verdicts if a part of the registry is unreachable: a good signature counts, otherwise the verdict stays open."""

from collections.abc import Callable

import pytest
from gkm.api.config import Policy, Verification
from gkm.api.errors import Reason
from gkm.images.signatures.verify import Verdict, Verifier
from support.images.cache_registry import Site
from support.images.private_registry import as_user, client, image_of, private
from support.registry import faults
from support.registry.faults import Fault
from support.registry.push import Target
from support.registry.store import OCI_INDEX
from support.sigstore.key_signatures import Flaw, SigningKey, sign_bundle, sign_legacy

KEY, SECOND = SigningKey(), SigningKey()
REFERRERS, TAG = "referrers/", r"manifests/sha256-[0-9a-f]{64}\.sig"


def verdict(site: Site, *keys: SigningKey, seconds: float = 60.0) -> Verdict:
    policy = Policy(keys=[key.public_pem.decode() for key in keys or (KEY,)], require="all")
    return Verifier(Verification(policies=[policy]), seconds).verify(site.client, site.ref, "team")


def target(site: Site) -> Target:
    return Target(site.real.host, site.ref.repository)


AWAY: list[Callable[[str], Fault]] = [
    lambda path: faults.status(path, 503),
    lambda path: faults.status(path, 429),
    lambda path: faults.status(path, 401),
    lambda path: faults.status(path, 403),
    lambda path: faults.truncated(path, 5),
    faults.stalled,
]
away = pytest.mark.parametrize("fault", AWAY, ids=["503", "429", "401", "403", "cut", "silent"])


@away
def test_a_good_legacy_signature_counts_if_the_referrers_are_unreachable(
    site: Site, fault: Callable[[str], Fault]
) -> None:
    sign_legacy(target(site), site.ref.target, KEY)
    site.real.misbehave(fault(REFERRERS))
    assert verdict(site).verified is True


@away
def test_a_good_bundle_counts_if_the_legacy_tag_is_unreachable(site: Site, fault: Callable[[str], Fault]) -> None:
    sign_bundle(target(site), site.ref.target, KEY)
    site.real.misbehave(fault(TAG))
    assert verdict(site).verified is True


@away
@pytest.mark.parametrize("path", [REFERRERS, TAG])
def test_an_unreachable_form_leaves_the_verdict_open_without_a_good_signature(
    site: Site, fault: Callable[[str], Fault], path: str
) -> None:
    for sign in (sign_legacy, sign_bundle):
        sign(target(site), site.ref.target, KEY, Flaw.WRONG_KEY)
    site.real.misbehave(fault(path))
    answer = verdict(site)
    assert (answer.verified, answer.allowed) == (None, False)
    assert answer.reason in (Reason.REGISTRY_UNAVAILABLE, Reason.UNAUTHORIZED)
    assert [finding.ok for finding in answer.findings] == [False]


def test_one_of_two_required_signatures_leaves_the_verdict_open(site: Site) -> None:
    sign_legacy(target(site), site.ref.target, KEY)
    sign_bundle(target(site), site.ref.target, SECOND)
    assert verdict(site, KEY, SECOND).verified is True
    site.real.misbehave(faults.status(REFERRERS, 503))
    assert verdict(site, KEY, SECOND).verified is None


@pytest.mark.parametrize("lie", [b"", b"<html>", b"[]", b'{"manifests":7}', b'{"manifests":null}', b"[" * 9999])
def test_a_good_legacy_signature_counts_beside_any_answer_of_the_referrers_api(site: Site, lie: bytes) -> None:
    sign_legacy(target(site), site.ref.target, KEY)
    site.real.misbehave(faults.tampered(REFERRERS, lambda _: lie))
    assert verdict(site).verified is True


@pytest.mark.parametrize("lie", [b"", b"<html>", b"[]", b'{"layers":7}', b"[" * 9999])
def test_a_good_bundle_counts_beside_any_content_of_the_legacy_tag(site: Site, lie: bytes) -> None:
    sign_bundle(target(site), site.ref.target, KEY)
    sign_legacy(target(site), site.ref.target, SECOND)
    site.real.misbehave(faults.tampered(TAG, lambda _: lie))
    assert verdict(site).verified is True


def test_a_lie_alone_is_a_refusal_with_its_reason(site: Site) -> None:
    sign_legacy(target(site), site.ref.target, KEY)
    site.real.misbehave(faults.tampered(TAG, lambda _: b"<html>"))
    answer = verdict(site)
    assert (answer.verified, answer.reason) == (False, Reason.SIGNATURE_INVALID)
    assert "cannot be read" in answer.message


@pytest.mark.parametrize("page", [b"<html>maintenance", b"x" * 100_000])
def test_a_page_in_place_of_a_token_leaves_the_verdict_open(page: bytes) -> None:
    """It was a refusal: a proxy before the token server revoked caches that nodes served."""
    with private() as registry:
        ref = image_of(registry)
        pinned = ref.pinned(client(as_user(registry, "robot"), registry).resolve(ref))
        registry.misbehave(faults.Fault("/token", lambda answer: answer._replace(body=page)))
        policy = Policy(keys=[KEY.public_pem.decode()])
        ours = client(as_user(registry, "robot"), registry)
        answer = Verifier(Verification(policies=[policy])).verify(ours, pinned, "team")
        assert (answer.verified, answer.reason) == (None, Reason.REGISTRY_UNAVAILABLE)
        assert "its token server sends no token" in answer.message


def test_one_unreachable_bundle_hides_no_other(site: Site) -> None:
    hidden = sign_bundle(target(site), site.ref.target, SECOND)
    sign_bundle(target(site), site.ref.target, KEY)
    site.real.misbehave(faults.status(f"manifests/{hidden}", 503))
    assert verdict(site, KEY).verified is True
    assert verdict(site, SECOND).verified is None


def test_an_index_in_the_fallback_tag_that_lists_nonsense_hides_no_legacy_signature(
    site_without_referrers: Site,
) -> None:
    site = site_without_referrers
    sign_legacy(target(site), site.ref.target, KEY)
    tag = site.ref.target.replace(":", "-")
    target(site).manifest(b'{"schemaVersion":2,"manifests":[{"digest":7}]}', tag, OCI_INDEX)
    assert verdict(site).verified is True


def test_many_slow_signatures_leave_the_verdict_open_long_before_the_last(site: Site) -> None:
    place = target(site)
    for _ in range(20):
        sign_bundle(place, site.ref.target, SECOND)
    site.real.misbehave(faults.stalled("manifests/sha256:", seconds=0.3))
    site.real.requests.clear()
    answer = verdict(site, seconds=1.0)
    assert (answer.verified, answer.allowed, answer.reason) == (None, False, Reason.REGISTRY_UNAVAILABLE)
    assert len(site.real.seen("GET", "manifests/sha256:")) < 10


def test_a_good_signature_counts_if_the_time_ends_after_it(site: Site) -> None:
    sign_bundle(target(site), site.ref.target, KEY)
    site.real.misbehave(faults.stalled(TAG))
    assert verdict(site, seconds=0.3).verified is True


def test_an_image_that_uses_up_its_time_leaves_the_next_image_its_own(site: Site) -> None:
    sign_bundle(target(site), site.ref.target, KEY)
    assert verdict(site, seconds=0.0).verified is None
    assert verdict(site).verified is True


def test_a_registry_that_is_not_allowed_is_the_reason_itself(site: Site) -> None:
    policy = Policy(keys=[KEY.public_pem.decode()])
    client = site.client_with(allow=["registry.example/*"])
    answer = Verifier(Verification(policies=[policy])).verify(client, site.ref, "team")
    assert (answer.verified, answer.reason) == (False, Reason.NOT_ALLOWED)
