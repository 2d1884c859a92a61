"""Decoding of requests about workloads, and the limit on the bytes under review."""

import json
import logging
import weakref
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from threading import Event, Thread
from typing import Any

import pytest
from gkm_operator import metrics
from gkm_operator.admission.domains import cluster_view, requests, reviewer
from gkm_operator.admission.domains.reviewer import ByteBudget
from gkm_operator.admission.review import ReviewBusy, ReviewInvalid
from hypothesis import given
from hypothesis import strategies as st
from support.grove.objects import NAMESPACE, Json, clique, pod_clique_set
from support.grove.tables import table
from support.host.waiting import scaled, until
from support.operator.workloads import KINDS, Workloads, review, workloads

OF_V1 = r"not an AdmissionReview of admission\.k8s\.io/v1"
STRICT = [path for path in KINDS if path != "/pods"]


def asked(path: str, body: bytes) -> Json:
    site = workloads()
    response: Json = json.loads(site.reviewers[path](lambda: body, lambda: None))["response"]
    return response


@pytest.mark.parametrize("path", KINDS)
@table(
    "body, why",
    [
        ("empty", b"", "Input data was truncated"),
        ("no JSON", b"{", "Input data was truncated"),
        ("a list", b"[]", "Expected `object`, got `array`"),
        ("no version", b"{}", "missing required field `apiVersion`"),
        (
            "no request",
            b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}',
            "missing required field `request`",
        ),
        ("bytes that are no text", b"\xff", "JSON is malformed"),
        ("deeply nested", b'{"request":{"uid":"u","x":' + b"[" * 100_000, "maximum recursion depth exceeded"),
        ("another version", review("/pods", {}).replace(b"admission.k8s.io/v1", b"admission.k8s.io/v1beta1"), OF_V1),
        ("another kind", review("/pods", {}).replace(b'"Pod"', b'"Node"'), r"this path reviews \w+ only"),
        ("without a uid", review("/pods", {}).replace(b'"u-1"', b'""'), r"length >= 1 - at `\$\.request\.uid`"),
    ],
)
def test_a_body_that_is_no_review_is_refused_with_a_reason(path: str, body: bytes, why: str) -> None:
    with pytest.raises(ReviewInvalid, match=why):
        asked(path, body)


METADATA = {"name": "x", "namespace": NAMESPACE}


@pytest.mark.parametrize("path", KINDS)
@table(
    "reviewed, place",
    [
        ("labels of another type", {"metadata": {**METADATA, "labels": []}}, "$.metadata.labels"),
        ("a label of another type", {"metadata": {**METADATA, "labels": {"a": 1}}}, "$.metadata.labels"),
        ("no metadata", {"spec": {}}, "`metadata`"),
        ("no object", None, "without an object"),
    ],
)
def test_an_object_that_cannot_be_read_is_refused_with_its_place_and_a_pod_is_admitted(
    path: str, reviewed: Json | None, place: str
) -> None:
    response = asked(path, review(path, reviewed))
    message = " ".join(response.get("warnings", ())) if path == "/pods" else response["status"]["message"]
    assert response["allowed"] == (path == "/pods")
    assert place in message
    assert "cannot be read" in message


@table(
    "template, place",
    [
        ("too many cliques", {"cliques": [clique(f"c{number}") for number in range(1025)]}, "length <= 1024"),
        ("too many containers", {"cliques": [clique("c", containers=[{"name": "x"}] * 5000)]}, "length <= 4096"),
        ("too many claims", {"cliques": [clique("c", resourceClaims=[{"name": "x"}] * 257)]}, "length <= 256"),
        ("a negative number", {"cliques": [clique("c", replicas=-1)]}, ">= 0"),
    ],
)
def test_a_set_beyond_the_limits_is_refused(template: Json, place: str) -> None:
    given = pod_clique_set()
    given["spec"]["template"] = template
    for path in ("/podcliquesets/default", "/podcliquesets/validate"):
        response = asked(path, review(path, given))
        assert not response["allowed"]
        assert place in response["status"]["message"]


def test_foreign_text_in_a_message_is_printable_and_short() -> None:
    given = pod_clique_set(annotations={"grove.io/mnnvl-group": "\u202e\x1b" + "x" * 100_000})
    message = asked("/podcliquesets/validate", review("/podcliquesets/validate", given))["status"]["message"]
    assert message.isprintable()
    assert len(message) < 300


@pytest.mark.parametrize("path", KINDS)
def test_a_deletion_and_a_subresource_are_admitted_unread(path: str) -> None:
    assert asked(path, review(path, None, {"metadata": {"labels": 1}}, operation="DELETE"))["allowed"]
    assert asked(path, review(path, {"metadata": {"labels": 1}}, subResource="status"))["allowed"]


def test_a_review_is_counted_by_its_kind_and_result() -> None:
    def count(result: str) -> float:
        labels = {"kind": "PodCliqueSet", "result": result}
        return metrics.REGISTRY.get_sample_value("gkm_admission_seconds_count", labels) or 0.0

    before = {result: count(result) for result in ("admitted", "refused")}
    site = Workloads()
    site.review("/podcliquesets/validate", pod_clique_set())
    site.review("/podcliquesets/validate", pod_clique_set(annotations={"grove.io/auto-mnnvl": "x"}))
    assert {result: count(result) - before[result] for result in before} == {"admitted": 1.0, "refused": 1.0}


def test_a_review_is_logged_with_its_object_and_result(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    site = workloads()
    site.review("/podcliquesets/validate", pod_clique_set(annotations={"grove.io/auto-mnnvl": "x"}))
    site.review("/podcliquesets/validate", pod_clique_set("cpu", clique("worker", 0)))
    refused, admitted = (record for record in caplog.records if "gkm_operator" in record.name)
    assert (refused.levelname, refused.message, vars(refused)["object"]) == (
        "INFO",
        "object refused",
        f"PodCliqueSet {NAMESPACE}/test-pcs",
    )
    assert "must be" in vars(refused)["why"]
    assert (admitted.levelname, admitted.message) == ("DEBUG", "object admitted")


def test_bytes_beyond_the_budget_wait_for_others_and_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviewer, "WAIT_SECONDS", 30.0)
    budget, entered, leave = ByteBudget(200), Event(), Event()
    order: list[str] = []

    def hold() -> None:
        with budget.reserve("a", 90):
            entered.set()
            leave.wait(scaled(30))
            order.append("left")

    def follow() -> None:
        with budget.reserve("b", 60, 30.0):
            order.append("entered")

    holder, follower = Thread(target=hold), Thread(target=follow)
    holder.start()
    assert entered.wait(scaled(30))
    with budget.reserve("b", 50):
        follower.start()
        until(lambda: budget._released._waiters, "it waits")  # type: ignore[attr-defined] # of the standard library
        leave.set()
        holder.join(scaled(30))
    follower.join(scaled(30))
    assert order == ["left", "entered"]


def test_a_request_that_gets_no_bytes_is_busy() -> None:
    budget = ByteBudget(100)
    with budget.reserve("a", 50), pytest.raises(ReviewBusy, match="too many large requests"):
        budget.reserve("a", 1, 0.0).__enter__()
    with budget.reserve("a", 50):
        pass


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 200), st.booleans()), max_size=40))
def test_a_namespace_gets_at_most_half_and_leaves_some_to_every_other(
    steps: list[tuple[str, int, bool]],
) -> None:
    budget, used = ByteBudget(200), Counter[str]()
    open_ones: list[tuple[ExitStack, str, int]] = []
    for namespace, size, leaves in steps:
        if leaves and open_ones:
            closed, its_namespace, its_size = open_ones.pop()
            closed.close()
            used[its_namespace] -= its_size
        with ExitStack() as stack:
            free = 200 - used.total()
            try:
                stack.enter_context(budget.reserve(namespace, size, 0.0))
            except ReviewBusy:
                assert used[namespace] + size > free - size
                continue
            used[namespace] += size
            assert used[namespace] <= 100
            assert used[namespace] <= 200 - used.total()
            open_ones.append((stack.pop_all(), namespace, size))
    for closed, _, _ in open_ones:
        closed.close()
    with budget.reserve("z", 100, 0.0):
        pass


def test_an_error_in_a_review_releases_its_bytes() -> None:
    budget = ByteBudget(200)
    with pytest.raises(ZeroDivisionError), budget.reserve("a", 100):
        _ = 1 // 0
    with budget.reserve("a", 100):
        pass


CLAIMED = clique(
    "worker",
    containers=[{"name": "main", "resources": {"claims": [{"name": "gpus"}]}}],
    resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "t"}],
)


def test_a_review_that_reads_decodes_its_request_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []

    def counted(envelope: requests.Envelope, kind: type[Any]) -> requests.DomainRequest[Any]:
        decoded.append(envelope.name)
        return decode(envelope, kind)

    decode = requests.decode
    monkeypatch.setattr(requests, "decode", counted)
    site = workloads()
    assert site.review("/podcliquesets/default", pod_clique_set("slow", CLAIMED)).allowed
    assert [name for verb, _, name in site.api.calls if verb == "get"] == ["t"]
    assert decoded == ["slow"]


def test_a_review_that_waits_for_the_api_server_holds_no_body_and_delays_its_own_namespace_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_view, "READ_SECONDS", 30.0)
    monkeypatch.setattr(cluster_view, "REVIEW_SECONDS", 30.0)
    site = workloads()
    budget = ByteBudget(24 << 10)
    site.reviewers = {path: replace(one, budget=budget) for path, one in site.reviewers.items()}
    slow, answer, releases = Event(), Event(), list[str]()

    def silent(verb: str, _: str) -> None:
        if verb == "get":
            slow.set()
            answer.wait(scaled(30))

    site.api.fault = silent
    reviewed = pod_clique_set("slow", CLAIMED)
    reviewed["spec"]["template"]["filling"] = "x" * 8000
    body = Body(review("/podcliquesets/default", reviewed))
    held, bodies = weakref.ref(body), [body]
    del body
    responses: list[bytes] = []
    reviewer = site.reviewers["/podcliquesets/default"]
    thread = Thread(target=lambda: responses.append(reviewer(bodies.pop, lambda: releases.append("released"))))
    thread.start()
    try:
        assert slow.wait(scaled(30))
        assert releases == ["released"]
        assert held() is None
        with budget.reserve("other", 5000, 0.0):
            pass
        with pytest.raises(ReviewBusy, match="too many large requests about workloads"):
            budget.reserve(NAMESPACE, 5000, 0.0).__enter__()
        assert site.review("/podcliquesets/default", pod_clique_set("quick", namespace="other")).changed
    finally:
        answer.set()
        thread.join(scaled(30))
    assert json.loads(responses[0])["response"]["allowed"]


class Body(bytearray):
    """A body that a weak reference may name."""
