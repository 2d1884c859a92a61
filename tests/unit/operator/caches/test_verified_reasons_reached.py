"""Every reason of the condition Verified, from a registry's response to the status of a GKMCache."""

import functools
from collections.abc import Callable

import pytest
import yaml
from gkm.api.caches import CacheSpec, GKMCache, LocalObjectReference
from gkm.api.config import Config, parse
from gkm.api.meta import Condition, ObjectMeta
from gkm.images.registries.credentials import PullSecrets
from gkm.images.registries.transport import TransportLimits
from gkm.kube.errors import ApiError
from gkm.kube.secrets import KubeSecrets
from gkm_operator.caches.outcome import check_image
from gkm_operator.caches.status import desired_status
from gkm_operator.caches.totals import CacheSummary
from gkm_operator.images import CheckedImages
from support.kube.fake_api import FakeApi
from support.operator.deployment import Shelf
from support.registry import faults
from support.sigstore.key_signatures import Flaw

LIMITS = TransportLimits(connect=1.0, stall=0.5, request=3.0, pause=0.01)
NOW = "2026-01-01T00:00:00Z"


def verified(image: str, config: Config, api: FakeApi | None = None, secret: str = "") -> Condition:
    """Look at an image as the controller does; return the condition that it then writes."""
    secrets = PullSecrets(KubeSecrets(api or FakeApi()), config.registries, "gkm-system")
    named = [LocalObjectReference(secret)] if secret else []
    cache = GKMCache(ObjectMeta("x", "team", uid="u", generation=1), CacheSpec(image, image_pull_secrets=named))
    status = desired_status(
        cache, check_image(CheckedImages.of(config, LIMITS, secrets), cache, None), CacheSummary(), NOW
    )
    assert status is not None
    condition = status.condition("Verified")
    assert condition is not None
    assert condition.message
    return condition


def config_of(shelf: Shelf, mode: str = "enforce", *allow: str) -> Config:
    value = yaml.load(shelf.config(mode), yaml.CSafeLoader)
    value["registries"]["allow"] = list(allow)
    return parse(yaml.safe_dump(value))


@pytest.mark.parametrize(
    ("flaw", "mode", "status", "reason"),
    [
        (Flaw.NONE, "enforce", "True", "CosignSuccess"),
        (None, "enforce", "False", "SignatureMissing"),
        (Flaw.WRONG_KEY, "enforce", "False", "SignatureInvalid"),
        (None, "warn", "True", "NotRequired"),
        (None, "off", "True", "NotRequired"),
    ],
)
def test_a_signature_becomes_a_condition(images: Shelf, flaw: Flaw | None, mode: str, status: str, reason: str) -> None:
    image, _ = images.push(f"{status}-{reason}-{mode}".lower(), flaw=flaw)
    condition = verified(image, config_of(images, mode))
    assert (condition.status, condition.reason) == (status, reason)


def test_a_digest_that_the_registry_does_not_have_is_not_found_and_has_no_missing_signature(images: Shelf) -> None:
    image, digest = images.push("absent", flaw=None)
    named = f"{image.rpartition(':')[0]}@{digest}"
    assert verified(named, config_of(images)).reason == "SignatureMissing"
    condition = verified(f"{named[:-4]}{'0000' if named[-4:] != '0000' else '1111'}", config_of(images))
    assert (condition.status, condition.reason) == ("False", "NotFound")


@pytest.mark.parametrize(
    ("fault", "status", "reason"),
    [
        (functools.partial(faults.status, code=503), "Unknown", "RegistryUnavailable"),
        (functools.partial(faults.status, code=403), "Unknown", "Unauthorized"),
        (functools.partial(faults.status, code=404), "False", "NotFound"),
        (functools.partial(faults.redirected, url="file:///etc/passwd"), "False", "NotAllowed"),
        (faults.content_encoded, "False", "UnsafeContent"),
        (functools.partial(faults.overlong, extra=bytes(8 << 20)), "False", "TooLarge"),
        (
            lambda path: faults.Fault(path, faults.with_headers({"Content-Type": "text/html"})),
            "False",
            "MetadataInvalid",
        ),
    ],
)
def test_a_registry_fault_becomes_a_condition(
    images: Shelf, fault: Callable[[str], faults.Fault], status: str, reason: str
) -> None:
    image, _ = images.push("faulty")
    images.registry.misbehave(fault("team/faulty/manifests/1"))
    try:
        condition = verified(image, config_of(images))
    finally:
        images.registry.behave()
    assert (condition.status, condition.reason) == (status, reason)


@pytest.mark.parametrize("image", ["UPPER/case:1", "registry.test/team/x@sha256:short", "registry.test:99999999/x"])
def test_an_invalid_reference_becomes_a_condition(images: Shelf, image: str) -> None:
    condition = verified(image, config_of(images))
    assert (condition.status, condition.reason) == ("False", "InvalidReference")


def test_a_registry_that_is_not_allowed_becomes_a_condition(images: Shelf) -> None:
    image, _ = images.push("strange")
    condition = verified(image, config_of(images, "enforce", "registry.example/*"))
    assert (condition.status, condition.reason) == ("False", "NotAllowed")


@pytest.mark.parametrize(
    ("answer", "reason"), [(404, "Unauthorized"), (403, "Unauthorized"), (500, "NodeError"), (0, "NodeError")]
)
def test_a_pull_secret_that_cannot_be_read_becomes_a_condition(images: Shelf, answer: int, reason: str) -> None:
    image, _ = images.push("private")
    api = FakeApi()
    api.fault = lambda verb, _: ApiError(answer, "", "no") if verb == "get" else None
    condition = verified(image, config_of(images), api, "pull")
    assert (condition.status, condition.reason) == ("Unknown", reason)
    assert "Secret team/pull" in condition.message
