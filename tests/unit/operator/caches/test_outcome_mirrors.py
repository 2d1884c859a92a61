"""The outcome for an image that a mirror serves: whether the image still exists depends on the registry alone."""

from collections.abc import Iterator

import pytest
from gkm.api.caches import CacheSpec, GKMCache
from gkm.api.config import Config, Policy, Registries, RegistryHost, Verification
from gkm.api.errors import Reason
from gkm.api.meta import FALSE, UNKNOWN, ObjectMeta
from gkm_operator.caches.outcome import CurrentImage, Outcome, check_image
from gkm_operator.images import CheckedImages
from support.images.archives import cache_image
from support.images.cache_registry import PATIENT, Site, filled
from support.registry import faults
from support.registry.server import Registry
from support.sigstore.key_signatures import SigningKey

POLICY = Policy(keys=[SigningKey().public_pem.decode()])


@pytest.fixture
def site() -> Iterator[Site]:
    with Registry.start() as real:
        yield filled(real, cache_image())


@pytest.fixture
def mirror() -> Iterator[Registry]:
    with Registry.start() as real:
        filled(real, cache_image())
        yield real


def outcome(site: Site, mirror: Registry) -> Outcome:
    """Check a cache whose image has no signature that counts."""
    hosts = {
        site.real.host: RegistryHost(plain_http=True, mirrors=[mirror.host]),
        mirror.host: RegistryHost(plain_http=True),
    }
    images = CheckedImages.of(Config(Verification(policies=[POLICY]), Registries(hosts=hosts)), PATIENT)
    meta = ObjectMeta(name="x", namespace="a", uid="u", generation=1)
    cache = GKMCache(meta, CacheSpec(f"{site.real.host}/{site.ref.repository}:1"))
    return check_image(images, cache, CurrentImage(site.ref.target))


def test_an_image_that_only_a_mirror_still_has_is_not_revoked(site: Site, mirror: Registry) -> None:
    site.real.misbehave(faults.status("/v2/", 404))
    found = outcome(site, mirror)
    assert (found.status, found.reason, found.sure) == (UNKNOWN, Reason.NOT_FOUND, False)
    assert mirror.seen("GET", "manifests/")


def test_an_image_without_a_signature_that_the_registry_still_has_is_refused(site: Site, mirror: Registry) -> None:
    found = outcome(site, mirror)
    assert (found.status, found.reason, found.sure) == (FALSE, Reason.SIGNATURE_MISSING, True)
