"""The validator: every branch of its decision, concurrent requests, slow registries, busy namespaces, metrics."""

import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event, Lock
from typing import Any

import msgspec
import pytest
from gkm.api.config import Registries, RegistryHost
from gkm.api.errors import GKMError, Reason
from gkm.images.signatures.verify import Verdict
from gkm_operator import metrics
from gkm_operator.admission import validator as judging
from gkm_operator.admission.https import server
from gkm_operator.admission.review import (
    MAX_WARNING,
    MAX_WARNING_LINES,
    ReviewInvalid,
    ReviewResponse,
    encode,
    parse,
    result,
)
from gkm_operator.admission.validator import ImageValidator, VerdictCache
from hypothesis import given
from hypothesis import strategies as st
from support.host.waiting import scaled, until
from support.operator.images import AWAY, DIGEST, GOOD, OFF, UNKNOWN, UNSIGNED, WARNED, FakeImages
from support.operator.reviews import IMAGE, an_object, request, review

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


def test_a_review_is_read() -> None:
    read = request(dryRun=True)
    assert (read.uid, read.scope, read.dry_run) == ("u-1", "a", True)
    assert read.object
    assert read.object.spec.image == IMAGE
    assert request(namespace="").scope is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).encode(),
        json.dumps(review() | {"kind": "Pod"}).encode(),
        json.dumps(review() | {"apiVersion": "admission.k8s.io/v1beta1"}).encode(),
        json.dumps(review(uid="")).encode(),
        json.dumps(review(kind={"group": "", "version": "v1", "kind": "Pod"})).encode(),
        json.dumps(review(kind={"group": "gkm.io", "version": "v1", "kind": "GKMCacheNode"})).encode(),
        json.dumps(review(object={"spec": {}})).encode(),
        json.dumps(review(object={"spec": {"image": 7}})).encode(),
        json.dumps(review(object={"spec": {"image": "x" * 5000}})).encode(),
        json.dumps(review(object=an_object(IMAGE, deletionTimestamp=7))).encode(),
    ],
)
def test_a_body_that_is_not_a_review_of_our_kinds_is_refused(body: bytes) -> None:
    with pytest.raises(ReviewInvalid) as caught:
        parse(body)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("field", ["operation", "name", "namespace", "subResource", "version", "deletionTimestamp"])
def test_no_field_is_longer_than_a_kubernetes_name(field: str) -> None:
    def saying(text: str) -> bytes:
        changes: dict[str, Any] = {field: text}
        if field == "version":
            changes = {"kind": {"group": "gkm.io", "version": text, "kind": "GKMCache"}}
        if field == "deletionTimestamp":
            changes = {"object": an_object(IMAGE, deletionTimestamp=text)}
        return json.dumps(review(**changes)).encode()

    assert parse(saying("x" * 253))
    with pytest.raises(ReviewInvalid, match="length <= 253"):
        parse(saying("x" * 254))


@given(st.binary(max_size=200) | st.recursive(st.none() | st.text(), st.lists).map(lambda v: json.dumps(v).encode()))
def test_no_bytes_do_worse_than_that(body: bytes) -> None:
    with pytest.raises(ReviewInvalid, match="not an AdmissionReview: "):
        parse(body)


@given(st.sampled_from(sorted(review()["request"])), st.none() | st.integers() | st.text() | st.lists(st.text()))
def test_no_field_of_another_kind_does_worse_either(field: str, value: object) -> None:
    try:
        parse(json.dumps(review(**{field: value})).encode())
    except ReviewInvalid as error:
        assert str(error)


def test_a_response_carries_uid_message_and_warnings() -> None:
    assert msgspec.json.decode(encode("u", ReviewResponse(allowed=True)))["response"] == {"uid": "u", "allowed": True}
    refused = msgspec.json.decode(encode("u", ReviewResponse(allowed=False, message="no")))
    assert refused["response"]["status"] == {"code": 403, "reason": "Forbidden", "message": "no"}
    warned = msgspec.json.decode(encode("u", ReviewResponse(allowed=True, warnings=("a\nb\t c", "d"))))
    assert warned["response"]["warnings"] == ["a b c", "d"]


def test_a_long_warning_is_wrapped_below_the_api_servers_limit_and_ends() -> None:
    said = "the-image is not verified yet " * 20
    lines = msgspec.json.decode(encode("u", ReviewResponse(allowed=True, warnings=(said,))))["response"]["warnings"]
    assert (len(lines), " ".join(lines)) == (3, said.strip())
    assert max(len(line) for line in lines) <= MAX_WARNING
    endless = msgspec.json.decode(encode("u", ReviewResponse(allowed=True, warnings=("x" * 9999,))))["response"][
        "warnings"
    ]
    assert (len(endless), endless[-1][-1]) == (MAX_WARNING_LINES, "…")
    assert max(len(line) for line in endless) <= MAX_WARNING


@pytest.mark.parametrize(
    "changes",
    [
        {"operation": "DELETE", "object": None},
        {"operation": "CONNECT"},
        {"subResource": "status"},
        {"operation": "UPDATE", "object": an_object("other", deletionTimestamp="2026-01-01T00:00:00Z")},
        {"operation": "UPDATE", "oldObject": an_object(IMAGE)},
    ],
)
def test_some_requests_pass_without_an_image_check(changes: dict[str, Any]) -> None:
    assert judging.decide_without_image(request(**changes)) == ReviewResponse(allowed=True)


@pytest.mark.parametrize("changes", [{}, {"operation": "UPDATE", "oldObject": an_object("other")}])
def test_a_new_image_is_checked(changes: dict[str, Any]) -> None:
    assert judging.decide_without_image(request(**changes)) is None


def test_a_create_without_an_object_is_refused() -> None:
    answer = judging.decide_without_image(request(object=None))
    assert answer
    assert not answer.allowed


@pytest.mark.parametrize(
    ("verdict", "allowed", "said"),
    [
        (GOOD, True, ""),
        (OFF, True, ""),
        (UNSIGNED, False, "(SignatureMissing): no signature was found"),
        (WARNED, True, "no signature (only warns)"),
        (UNKNOWN, True, "not verified yet"),
        (replace(UNKNOWN, allowed=True), True, "1: no answer"),
    ],
)
def test_the_verdict_decides(verdict: Verdict, allowed: bool, said: str) -> None:  # noqa: FBT001 -- a parameter
    answer = judging.decide_verdict(request(), verdict, "enforce")
    assert answer.allowed is allowed
    told = answer.message + "".join(answer.warnings)
    assert (said in told) if said else not told
    assert (IMAGE in told) == bool(told)


@pytest.mark.parametrize(
    ("reason", "mode", "allowed", "silent"),
    [
        (Reason.REGISTRY_UNAVAILABLE, "enforce", True, False),
        (Reason.UNAUTHORIZED, "enforce", True, False),
        (Reason.NOT_FOUND, "enforce", False, False),
        (Reason.DIGEST_MISMATCH, "enforce", False, False),
        (Reason.NOT_FOUND, "warn", True, False),
        (Reason.NOT_FOUND, "off", True, False),
        (Reason.INVALID_REFERENCE, "enforce", False, False),
        (Reason.INVALID_REFERENCE, "off", False, False),
        (Reason.NOT_ALLOWED, "warn", False, False),
    ],
)
def test_only_a_definite_failure_is_refused(reason: Reason, mode: str, allowed: bool, silent: bool) -> None:  # noqa: FBT001
    answer = judging.decide_error(request(), GKMError(reason, "what was found", "what to do"), mode)
    assert answer.allowed is allowed
    assert bool(answer.warnings or answer.message) is not silent
    assert "what was found; what to do" in answer.message + "".join(answer.warnings)


def judged(images: FakeImages, mode: str = "enforce", **changes: Any) -> ReviewResponse:  # noqa: ANN401 -- JSON
    return ImageValidator(images, mode, seconds=10).review(request(**changes))


def test_the_digest_of_the_tag_is_verified_in_the_namespace_of_the_object() -> None:
    images = FakeImages({IMAGE: DIGEST}, {DIGEST: GOOD})
    assert judged(images) == ReviewResponse(allowed=True)
    assert images.asked == [("resolve", IMAGE), ("verify", IMAGE, DIGEST, "a")]
    images.asked.clear()
    judged(images, namespace="", kind={"group": "gkm.io", "version": "v1alpha1", "kind": "ClusterGKMCache"})
    assert images.asked[-1] == ("verify", IMAGE, DIGEST, "None")


def test_an_error_of_the_registry_leads_to_a_decision() -> None:
    assert not judged(FakeImages()).allowed
    assert judged(FakeImages({IMAGE: AWAY})).allowed
    assert judged(FakeImages({IMAGE: DIGEST}, {DIGEST: AWAY})).allowed


def test_a_request_without_an_image_check_contacts_no_registry() -> None:
    images = FakeImages()
    assert judged(images, operation="DELETE", object=None).allowed
    assert images.asked == []


def asking(*secrets: str) -> dict[str, Any]:
    """Return an object with these pull secrets."""
    made = an_object(IMAGE)
    made["spec"] |= {"imagePullSecrets": [{"name": name} for name in secrets]}
    return made


def test_a_private_image_is_not_treated_as_missing() -> None:
    missing = FakeImages()
    answer = judged(missing, object=asking("pull"))
    assert answer.allowed
    assert "not pulled before it is" in answer.warnings[0]
    assert not judged(missing, object=asking()).allowed


@pytest.mark.parametrize("host", ["registry.test", "mirror.test"])
def test_credentials_may_also_be_those_of_the_configuration(host: str) -> None:
    hosts = {
        "registry.test": RegistryHost(mirrors=["mirror.test"]),
        "mirror.test": RegistryHost(),
        host: RegistryHost(mirrors=["mirror.test"], credentials_secret="s"),
    }
    opened = ImageValidator(FakeImages(), "enforce", Registries(hosts=hosts), seconds=10)
    assert opened.review(request()).allowed
    assert not opened.review(request(object=an_object("other.test/team/cache:1"))).allowed


def test_a_hidden_image_without_visible_signatures_is_admitted_with_a_warning() -> None:
    hidden = FakeImages({IMAGE: DIGEST}, sizes={DIGEST: GKMError(Reason.NOT_FOUND, "it is not there")})
    seen = FakeImages({IMAGE: DIGEST}, sizes={DIGEST: GKMError(Reason.METADATA_INVALID, "no cache image")})
    assert judged(hidden, object=asking("pull")).allowed
    assert not judged(hidden).allowed
    assert "(SignatureMissing)" in judged(seen, object=asking("pull")).message


@pytest.mark.parametrize("mode", ["warn", "off"])
def test_where_nothing_must_be_verified_nothing_is_promised_of_it(mode: str) -> None:
    (warning,) = judged(FakeImages({IMAGE: AWAY}), mode).warnings
    assert warning == f"image {IMAGE} was not checked: the registry does not answer"
    (late,) = judging.decide_unknown(request(), "no time", mode).warnings
    assert "verified" not in late


@pytest.mark.parametrize(
    ("response", "late", "word"),
    [
        (ReviewResponse(allowed=True), False, "admitted"),
        (ReviewResponse(allowed=True, warnings=("w",)), False, "warned"),
        (ReviewResponse(allowed=True, warnings=("w",)), True, "late"),
        (ReviewResponse(allowed=False, message="no"), False, "refused"),
    ],
)
def test_every_response_has_one_result_label(response: ReviewResponse, late: bool, word: str) -> None:  # noqa: FBT001
    assert result(response, late=late) == word


def test_a_log_line_names_the_cache_as_every_process_does(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    images = FakeImages({IMAGE: DIGEST}, {DIGEST: GOOD})
    judged(images)
    judged(images, namespace="")
    judged(images, name="")
    judged(images, operation="DELETE", object=None, name="../x")
    lines = [vars(record) for record in caplog.records]
    assert [line["message"] for line in lines] == ["cache admitted"] * 4
    assert [line.get("cache") for line in lines] == ["GKMCache a/x", "ClusterGKMCache x", None, None]
    assert [line.get("image") for line in lines] == [IMAGE, IMAGE, IMAGE, None]
