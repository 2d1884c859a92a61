"""Verdicts through a mirror: it saves the registry requests, and causes no refusal by withholding signatures."""

import json
from collections.abc import Callable, Iterator

import pytest
from gkm.api.config import Policy, Verification
from gkm.api.errors import Reason
from gkm.images.local_image import LocalImage
from gkm.images.reference import Reference
from gkm.images.registries import push
from gkm.images.signatures.verify import Verdict, Verifier
from support.images.cache_registry import PATIENT, Site, client_of
from support.images.mirrors import client_through
from support.registry import faults
from support.registry.push import Target
from support.registry.server import Registry as RealRegistry
from support.registry.store import OCI_INDEX, OCI_MANIFEST
from support.sigstore.key_signatures import SigningKey, sign_bundle, sign_legacy

KEY, SECOND = SigningKey(), SigningKey()
LEGACY_TAG = r"manifests/sha256-[0-9a-f]{64}\.sig"
Sign = Callable[[Target, str, SigningKey], str]


@pytest.fixture
def mirror(site: Site, built: LocalImage) -> Iterator[RealRegistry]:
    with RealRegistry.start() as mirror:
        push.image(client_of(mirror), Reference.parse(f"{mirror.host}/{site.ref.repository}:1"), built)
        yield mirror


def target(site: Site, real: RealRegistry) -> Target:
    return Target(real.host, site.ref.repository)


def verdict(site: Site, mirror: RealRegistry, seconds: float = 60.0) -> Verdict:
    verifier = Verifier(Verification(policies=[Policy(keys=[KEY.public_pem.decode()])]), seconds)
    return verifier.verify(client_through(site, mirror, PATIENT), site.ref, "team")


def attach_foreign_bundle(site: Site, mirror: RealRegistry) -> None:
    """Let the mirror list one bundle, by another key."""
    sign_bundle(target(site, mirror), site.ref.target, SECOND)


def empty_legacy_tag(site: Site, mirror: RealRegistry) -> None:
    manifest = json.loads(site.image.manifest) | {"layers": []}
    target(site, mirror).manifest(json.dumps(manifest).encode(), f"{tag_of(site)}.sig", OCI_MANIFEST)


def empty_fallback_tag(site: Site, mirror: RealRegistry) -> None:
    target(site, mirror).manifest(b'{"schemaVersion":2,"manifests":[]}', tag_of(site), OCI_INDEX)


def tag_of(site: Site) -> str:
    return site.ref.target.replace(":", "-")


@pytest.mark.parametrize(("sign", "withhold"), [(sign_bundle, attach_foreign_bundle), (sign_legacy, empty_legacy_tag)])
def test_a_mirror_that_withholds_a_signature_causes_no_refusal(
    site: Site, mirror: RealRegistry, sign: Sign, withhold: Callable[[Site, RealRegistry], None]
) -> None:
    sign(target(site, site.real), site.ref.target, KEY)
    withhold(site, mirror)
    assert verdict(site, mirror).verified is True


def test_an_empty_fallback_tag_of_a_mirror_causes_no_refusal(site_without_referrers: Site, built: LocalImage) -> None:
    site = site_without_referrers
    sign_bundle(target(site, site.real), site.ref.target, KEY)
    with RealRegistry.start() as mirror:
        push.image(client_of(mirror), Reference.parse(f"{mirror.host}/{site.ref.repository}:1"), built)
        empty_fallback_tag(site, mirror)
        assert verdict(site, mirror).verified is True
        assert mirror.seen("GET", tag_of(site))


def test_without_an_answer_of_the_registry_a_mirror_that_withholds_a_signature_leaves_the_verdict_open(
    site: Site, mirror: RealRegistry
) -> None:
    sign_legacy(target(site, site.real), site.ref.target, KEY)
    empty_legacy_tag(site, mirror)
    site.real.misbehave(faults.status(LEGACY_TAG, 503))
    answer = verdict(site, mirror)
    assert (answer.verified, answer.allowed, answer.reason) == (None, False, Reason.REGISTRY_UNAVAILABLE)


def test_a_signature_that_the_registry_lacks_too_is_a_refusal(site: Site, mirror: RealRegistry) -> None:
    empty_legacy_tag(site, mirror)
    answer = verdict(site, mirror)
    assert (answer.verified, answer.reason) == (False, Reason.SIGNATURE_MISSING)


def test_a_mirror_with_the_signature_spares_the_registry(site: Site, mirror: RealRegistry) -> None:
    sign_bundle(target(site, mirror), site.ref.target, KEY)
    site.real.requests.clear()
    assert verdict(site, mirror).verified is True
    assert site.real.seen("GET", "referrers/") == []
    assert site.real.seen("GET", "blobs/") == []


def test_a_mirror_that_hangs_leaves_time_for_every_signature(site: Site, mirror: RealRegistry) -> None:
    for _ in range(12):
        sign_bundle(target(site, site.real), site.ref.target, SECOND)
    sign_legacy(target(site, site.real), site.ref.target, KEY)
    mirror.misbehave(faults.stalled(""))
    assert verdict(site, mirror, seconds=10.0).verified is True
