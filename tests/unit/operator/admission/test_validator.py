"""The validator: concurrent requests, slow registries, busy namespaces, and its metrics."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock
from typing import Any

import pytest
from gkm_operator import metrics
from gkm_operator.admission import validator as judging
from gkm_operator.admission.https import server
from gkm_operator.admission.review import ReviewResponse
from gkm_operator.admission.validator import ImageValidator
from gkm_operator.admission.verdict_cache import VerdictCache
from support.host.waiting import scaled, until
from support.operator.images import AWAY, DIGEST, GOOD, FakeImages
from support.operator.reviews import IMAGE, an_object, request

GRANTED = ReviewResponse(allowed=True)


class SlowImages(FakeImages):
    """Registries below slow.test do not respond until released; the others have every image, all verified."""

    def __init__(self) -> None:
        super().__init__({}, {DIGEST: GOOD})
        self.go = Event()
        self.looking = 0
        self._lock = Lock()

    def resolve(self, image: str) -> str:
        with self._lock:
            self.looking += 1
        if "slow.test" in image:
            self.go.wait(scaled(30))
        return DIGEST


@pytest.fixture
def slow() -> Iterator[SlowImages]:
    images = SlowImages()
    yield images
    images.go.set()


def asked(validator: ImageValidator, image: str, **changes: Any) -> ReviewResponse:  # noqa: ANN401 -- JSON
    return validator.review(request(object=an_object(image), **changes))


def test_the_webhook_does_not_wait_for_a_slow_registry(slow: SlowImages) -> None:
    answer = asked(ImageValidator(slow, "enforce", seconds=0.01), "slow.test/team/cache:1")
    assert answer.allowed
    assert "registry slow.test could not be reached" in answer.warnings[0]
    assert "not pulled before it is" in answer.warnings[0]


def test_a_slow_registry_leaves_threads_for_other_registries(slow: SlowImages) -> None:
    validator = ImageValidator(slow, "enforce", seconds=0.01, threads=8)
    said = [asked(validator, f"slow.test/team/{n}:1", namespace=f"n{n}").warnings[0] for n in range(4)]
    assert ["too many images of registry slow.test" in why for why in said] == [False, False, True, True]
    until(lambda: asked(validator, "quick.test/team/cache:1", namespace="n0") == GRANTED, "another registry")


def test_a_busy_namespace_leaves_threads_for_other_namespaces(slow: SlowImages) -> None:
    validator = ImageValidator(slow, "enforce", seconds=0.01, threads=8)
    said = [asked(validator, f"{n}.slow.test/team/cache:1").warnings[0] for n in range(3)]
    assert "too many images of namespace a are being checked" in said[2]
    until(lambda: asked(validator, "quick.test/team/cache:1", namespace="b") == GRANTED, "another namespace")


def test_cluster_caches_share_a_quota_like_a_namespace(slow: SlowImages) -> None:
    validator = ImageValidator(slow, "enforce", seconds=0.01, threads=8)
    cluster = {"namespace": "", "kind": {"group": "gkm.io", "version": "v1alpha1", "kind": "ClusterGKMCache"}}
    said = [asked(validator, f"{n}.slow.test/team/cache:1", **cluster).warnings[0] for n in range(3)]
    assert "too many images of cluster caches are being checked" in said[2]


def test_many_requests_for_one_image_share_one_check(slow: SlowImages) -> None:
    validator = ImageValidator(slow, "enforce", seconds=30, waiting=100)
    with ThreadPoolExecutor(20) as pool:
        answers = [pool.submit(asked, validator, "slow.test/team/cache:1", uid=f"u-{n}") for n in range(20)]
        until(lambda: validator._single_flight._callers._taken["namespace a"] == 20, "all wait")
        slow.go.set()
        assert [answer.result() for answer in answers] == [GRANTED] * 20
    assert slow.looking == 1


def test_another_namespace_needs_another_check(slow: SlowImages) -> None:
    validator = ImageValidator(slow, "enforce", seconds=0.01)
    for namespace in ("a", "b"):
        asked(validator, "slow.test/team/cache:1", namespace=namespace)
    until(lambda: slow.looking == 2, "both are looked at")


def test_the_server_has_more_threads_than_may_wait_for_registries() -> None:
    assert server.THREADS > judging.WAITING > judging.THREADS


def test_an_invalid_reference_uses_no_thread(slow: SlowImages) -> None:
    validator = ImageValidator(slow, "enforce", seconds=0.01, threads=1)
    asked(validator, "slow.test/team/cache:1")
    answer = asked(validator, "UPPER/case:1")
    assert (answer.allowed, "(InvalidReference)" in answer.message) == (False, True)


def test_a_moved_tag_is_never_admitted_by_its_old_digest() -> None:
    images = FakeImages({IMAGE: DIGEST}, {DIGEST: GOOD})
    validator = ImageValidator(VerdictCache(images, lambda: 0), "enforce", seconds=30)
    assert validator.review(request()).allowed
    images.digests[IMAGE] = "sha256:" + "c" * 64
    assert not validator.review(request()).allowed


def test_a_refusal_is_forgotten_at_once() -> None:
    images = FakeImages({IMAGE: DIGEST})
    validator = ImageValidator(VerdictCache(images, lambda: 0), "enforce", seconds=30)
    assert not validator.review(request()).allowed
    images.verdicts[DIGEST] = GOOD
    assert validator.review(request()).allowed


def count(name: str, **labels: str) -> float:
    """Return how often something was taken in so far: other tests of this process count too."""
    return metrics.REGISTRY.get_sample_value(f"{name}_count", labels) or 0.0


@pytest.mark.parametrize(
    ("images", "result"),
    [
        (FakeImages({IMAGE: DIGEST}, {DIGEST: GOOD}), "admitted"),
        (FakeImages({IMAGE: AWAY}), "warned"),
        (FakeImages({IMAGE: DIGEST}), "refused"),
    ],
)
def test_every_response_is_counted(images: FakeImages, result: str) -> None:
    before = count("gkm_admission_seconds", kind="GKMCache", result=result)
    ImageValidator(images, "enforce", seconds=30).review(request())
    assert count("gkm_admission_seconds", kind="GKMCache", result=result) == before + 1


def test_late_responses_are_counted_separately(slow: SlowImages) -> None:
    before = count("gkm_admission_seconds", kind="GKMCache", result="late")
    asked(ImageValidator(slow, "enforce", seconds=0.01), "slow.test/team/cache:1")
    assert count("gkm_admission_seconds", kind="GKMCache", result="late") == before + 1


def test_verifications_and_those_that_were_spared_are_counted() -> None:
    validator = ImageValidator(
        VerdictCache(FakeImages({IMAGE: DIGEST}, {DIGEST: GOOD}), lambda: 0), "enforce", seconds=30
    )
    before = {result: count("gkm_verify_seconds", result=result) for result in ("verified", "remembered")}
    for _ in range(3):
        validator.review(request())
    assert count("gkm_verify_seconds", result="verified") == before["verified"] + 1
    assert count("gkm_verify_seconds", result="remembered") == before["remembered"] + 2


def test_the_page_names_both() -> None:
    page = metrics.page().body.decode()
    assert "# TYPE gkm_admission_seconds histogram" in page
    assert "# TYPE gkm_verify_seconds histogram" in page
