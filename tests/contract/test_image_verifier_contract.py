"""ImageVerifier: one body for what agent, controllers and admission use, over a real registry, and for their fakes."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from gkm.api.config import Config, Registries, parse
from gkm.api.errors import GKMError, Reason
from gkm.hoststate.layout import Layout
from gkm.images.registries.registry import Registry
from gkm.images.registries.transport import TransportLimits
from gkm.images.signatures.verified_images import ImageVerifier, RegistryImages
from gkm.images.signatures.verify import Verifier
from gkm_agent.pulls.images import NodeImages
from gkm_operator.admission.validator import VerdictCache
from gkm_operator.images import CheckedImages
from msgspec import structs
from support.agent.fakes import FakeImages as AgentImages
from support.operator.deployment import Shelf, shelf
from support.operator.images import AWAY, GOOD, UNSIGNED
from support.operator.images import FakeImages as OperatorImages
from support.registry import faults

LIMITS = TransportLimits(connect=1.0, stall=0.5, request=3.0, pause=0.01)
FORBIDDEN = "forbidden.test/team/cache:1"
NAMESPACES = ("ml-apps", None)


@dataclass
class Place:
    """An implementation, and images that it sees: one signed, one not; `leave` takes their registry away."""

    images: ImageVerifier
    signed: str
    signed_digest: str
    unsigned: str
    unsigned_digest: str
    leave: Callable[[], None]

    @property
    def missing(self) -> str:
        return self.signed.replace("/signed:", "/missing:")


def registry_images(config: Config, _: Path) -> ImageVerifier:
    return RegistryImages(Registry(config.registries, limits=LIMITS), Verifier(config.verification), None)


def of_agent(config: Config, directory: Path) -> ImageVerifier:
    return NodeImages.of(config, Layout(directory / "state", directory / "run"))


def of_operator(config: Config, _: Path) -> ImageVerifier:
    return CheckedImages.of(config, LIMITS)


def of_admission(config: Config, _: Path) -> ImageVerifier:
    return VerdictCache(CheckedImages.of(config, LIMITS), lambda: "stamp")


REAL = (registry_images, of_agent, of_operator, of_admission)


def real(make: Callable[[Config, Path], ImageVerifier], images: Shelf, directory: Path) -> Place:
    signed, signed_digest = images.push("signed")
    unsigned, unsigned_digest = images.push("unsigned", flaw=None)
    config = parse(images.config())
    allowed = Registries(allow=[f"{images.registry.host}/*"], hosts=config.registries.hosts)
    verifier = make(structs.replace(config, registries=allowed), directory)
    leave = partial(images.registry.misbehave, faults.status("", 503))
    return Place(verifier, signed, signed_digest, unsigned, unsigned_digest, leave)


SIGNED, UNSIGNED_IMAGE = "registry.test/team/signed:1", "registry.test/team/unsigned:1"
DIGEST, UNSIGNED_DIGEST = "sha256:" + "a" * 64, "sha256:" + "b" * 64
PINNED = {f"{image}@{digest}": digest for image, digest in ((SIGNED, DIGEST), (UNSIGNED_IMAGE, UNSIGNED_DIGEST))}
NOT_ALLOWED = GKMError(Reason.NOT_ALLOWED, "the configuration forbids it")


def fake_of_agent(directory: Path) -> Place:
    images = AgentImages(
        Layout(directory / "state", directory / "run"),
        tags={SIGNED: DIGEST, UNSIGNED_IMAGE: UNSIGNED_DIGEST},
        verdicts={DIGEST: GOOD, UNSIGNED_DIGEST: UNSIGNED},
    )
    return Place(images, SIGNED, DIGEST, UNSIGNED_IMAGE, UNSIGNED_DIGEST, lambda: images.failures.update(
        resolve=AWAY, verify=AWAY
    ))  # fmt: skip


def fake_of_operator(_: Path) -> Place:
    images = OperatorImages(
        digests={SIGNED: DIGEST, UNSIGNED_IMAGE: UNSIGNED_DIGEST, **PINNED},
        verdicts={DIGEST: GOOD},
        refused={FORBIDDEN: NOT_ALLOWED},
    )

    def leave() -> None:
        images.digests = dict.fromkeys(images.digests, AWAY)
        images.verdicts = {DIGEST: AWAY, UNSIGNED_DIGEST: AWAY}

    return Place(images, SIGNED, DIGEST, UNSIGNED_IMAGE, UNSIGNED_DIGEST, leave)


@pytest.fixture(params=[*REAL, fake_of_agent, fake_of_operator], ids=lambda make: make.__name__)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param in REAL:
        with shelf() as images:
            yield real(request.param, images, tmp_path)
    else:
        yield request.param(tmp_path)


def test_a_tag_leads_to_its_digest_and_a_digest_to_itself(place: Place) -> None:
    for image, digest in ((place.signed, place.signed_digest), (place.unsigned, place.unsigned_digest)):
        assert place.images.resolve(image) == digest
        assert place.images.resolve(f"{image}@{digest}") == digest


def test_an_image_that_does_not_exist_is_not_found(place: Place) -> None:
    with pytest.raises(GKMError) as caught:
        place.images.resolve(place.missing)
    assert caught.value.reason is Reason.NOT_FOUND


@pytest.mark.parametrize("image", ["", "no reference", "registry.test/UPPER:1"])
def test_an_invalid_reference_is_an_error(place: Place, image: str) -> None:
    with pytest.raises(GKMError) as caught:
        place.images.resolve(image)
    assert caught.value.reason is Reason.INVALID_REFERENCE


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_a_signed_image_is_verified_each_time(place: Place, namespace: str | None) -> None:
    for _ in range(2):
        verdict = place.images.verify(place.signed, place.signed_digest, namespace)
        assert (verdict.verified, verdict.allowed, verdict.reason) == (True, True, Reason.COSIGN_SUCCESS)
        assert verdict.message


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_an_unsigned_image_is_refused_each_time(place: Place, namespace: str | None) -> None:
    for _ in range(2):
        verdict = place.images.verify(place.unsigned, place.unsigned_digest, namespace)
        assert (verdict.verified, verdict.allowed, verdict.reason) == (False, False, Reason.SIGNATURE_MISSING)
        assert verdict.message


def test_a_verdict_is_about_the_digest_and_not_about_the_tag(place: Place) -> None:
    assert place.images.verify(place.signed, place.signed_digest, None).allowed
    assert not place.images.verify(place.unsigned, place.unsigned_digest, None).allowed
    assert place.images.verify(f"{place.signed}@{place.signed_digest}", place.signed_digest, None).allowed


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_a_permitted_image_is_accepted_without_its_registry(place: Place, namespace: str | None) -> None:
    place.leave()
    place.images.check_allowed(place.signed, namespace)
    place.images.check_allowed(place.unsigned, namespace)


def test_a_registry_that_does_not_answer_gives_an_error_and_no_verdict(place: Place) -> None:
    place.leave()
    with pytest.raises(GKMError) as caught:
        place.images.resolve(place.signed)
    assert caught.value.reason is Reason.REGISTRY_UNAVAILABLE
    for image, digest in ((place.signed, place.signed_digest), (place.unsigned, place.unsigned_digest)):
        try:
            verdict = place.images.verify(image, digest, None)
        except GKMError as error:
            assert error.reason is Reason.REGISTRY_UNAVAILABLE
            continue
        assert (verdict.verified, verdict.allowed) == (None, False)


def test_threads_get_the_same_answers(place: Place) -> None:
    with ThreadPoolExecutor(8) as threads:
        digests = threads.map(lambda _: place.images.resolve(place.signed), range(32))
        verdicts = threads.map(
            lambda _: place.images.verify(place.signed, place.signed_digest, None).allowed, range(32)
        )
        assert (set(digests), set(verdicts)) == ({place.signed_digest}, {True})


def test_a_forbidden_image_is_an_error(place: Place) -> None:
    if isinstance(place.images, AgentImages):
        place.images.failures["check"] = NOT_ALLOWED
    with pytest.raises(GKMError) as caught:
        place.images.check_allowed(FORBIDDEN, None)
    assert caught.value.reason is Reason.NOT_ALLOWED
