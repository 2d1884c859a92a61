"""The status of a cache for every outcome of its image and all totals of its nodes."""

import pytest
from gkm.api.caches import CacheSpec, CacheStatus, ClusterGKMCache, LocalObjectReference, verified_digest
from gkm.api.errors import GKMError, Reason
from gkm.api.meta import ObjectMeta
from gkm.images.signatures.verify import Verdict
from gkm_operator.caches.outcome import CurrentImage, Outcome, check_image, error_outcome, verdict_outcome
from gkm_operator.caches.status import ConditionValue, apply_configuration, desired_status, resolved_digest
from gkm_operator.caches.totals import CacheSummary
from gkm_operator.images import ImageClaims
from msgspec import structs
from support.operator.images import AWAY, DIGEST, GOOD, OFF, OTHER, UNKNOWN, UNSIGNED, WARNED, FakeImages
from support.operator.statuses import FULL, IMAGE, NOBODY, THEN, UNFIT, cache, settled

NOW = "2026-01-02T00:00:00Z"
COUNTS = ("totalNodes", "readyNodes", "failedNodes", "incompatibleNodes")
AWAY_BUT_ALLOWED = Verdict(verified=None, allowed=True, reason=Reason.REGISTRY_UNAVAILABLE, message="away")


def shown(status: CacheStatus, kind: str) -> tuple[str, str]:
    condition = status.condition(kind)
    assert condition
    return condition.status, condition.reason


@pytest.mark.parametrize(
    ("verdict", "status", "reason", "settled"),
    [
        (GOOD, "True", "CosignSuccess", True),
        (UNSIGNED, "False", "SignatureMissing", False),
        (UNKNOWN, "Unknown", "RegistryUnavailable", False),
        (WARNED, "True", "NotRequired", True),
        (AWAY_BUT_ALLOWED, "True", "NotRequired", False),
        (OFF, "True", "NotRequired", True),
    ],
)
def test_the_verdict_becomes_a_condition(verdict: Verdict, status: str, reason: str, settled: bool) -> None:  # noqa: FBT001
    outcome = verdict_outcome(IMAGE, DIGEST, verdict, ImageClaims(7))
    assert (outcome.status, outcome.reason, outcome.settled) == (status, reason, settled)
    assert outcome.message == verdict.message


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (Reason.REGISTRY_UNAVAILABLE, "Unknown"),
        (Reason.UNAUTHORIZED, "Unknown"),
        (Reason.NOT_FOUND, "False"),
        (Reason.NOT_ALLOWED, "False"),
        (Reason.INVALID_REFERENCE, "False"),
    ],
)
def test_an_error_becomes_a_condition_and_is_tried_again(reason: Reason, status: str) -> None:
    outcome = error_outcome(IMAGE, None, GKMError(reason, "what"))
    assert (outcome.status, outcome.reason, outcome.settled) == (status, reason, False)


def test_an_image_is_resolved_once_and_verified_each_time() -> None:
    images = FakeImages({IMAGE: OTHER}, {DIGEST: GOOD}, {DIGEST: 7})
    assert check_image(images, cache(), CurrentImage(DIGEST)) == Outcome(
        IMAGE, DIGEST, "True", Reason.COSIGN_SUCCESS, GOOD.message, 7
    )
    assert [call[0] for call in images.asked] == ["verify", "size"]
    assert check_image(images, cache(), None).digest == OTHER


def test_the_registry_is_read_with_the_secrets_of_the_cache() -> None:
    images = FakeImages({IMAGE: OTHER}, {OTHER: GOOD})
    private = cache()
    private = structs.replace(
        private, spec=structs.replace(private.spec, image_pull_secrets=[LocalObjectReference("pull")])
    )
    assert check_image(images, private, None).status == "True"
    assert images.asked[0] == ("opened for", IMAGE, "a", "pull")


def test_secrets_that_cannot_be_read_leave_the_question_open() -> None:
    outcome = check_image(
        FakeImages(closed=GKMError(Reason.UNAUTHORIZED, "Secret a/pull does not exist")), cache(), None
    )
    assert (outcome.status, outcome.reason, outcome.settled) == ("Unknown", Reason.UNAUTHORIZED, False)


def test_a_resolved_digest_stays_when_the_registry_fails_afterwards() -> None:
    outcome = check_image(FakeImages({IMAGE: DIGEST}, {DIGEST: AWAY}), cache(), None)
    assert (outcome.digest, outcome.status) == (DIGEST, "Unknown")


@pytest.mark.parametrize(
    ("error", "settled"), [(AWAY, False), (GKMError(Reason.METADATA_MISSING, "no cache image"), True)]
)
def test_a_size_that_cannot_be_read_refutes_no_signature(error: GKMError, settled: bool) -> None:  # noqa: FBT001
    outcome = check_image(FakeImages({IMAGE: DIGEST}, {DIGEST: GOOD}, {DIGEST: error}), cache(), None)
    assert (outcome.status, outcome.size_bytes, outcome.settled) == ("True", 0, settled)


def test_a_new_cache_gets_everything_at_once() -> None:
    status = settled(CacheSummary(total=3, ready=1, failed=1, pods=2, failures={"NoGPU": ["n"]}))
    assert (status.image, status.resolved_digest, status.size_bytes) == (IMAGE, DIGEST, 7)
    assert (status.total_nodes, status.ready_nodes, status.failed_nodes, status.pods_using) == (3, 1, 1, 2)
    assert (status.ready, status.failed_node_conditions) == ("1/3", {"NoGPU": ["n"]})
    assert (status.observed_generation, status.last_updated) == (1, THEN)
    assert [condition.type for condition in status.conditions] == ["Error", "Ready", "Verified"]
    assert all(condition.observed_generation == 1 for condition in status.conditions)
    assert verified_digest(cache(status)) == DIGEST


@pytest.mark.parametrize(
    ("summary", "ready", "error"),
    [
        (NOBODY, ("False", "NoMatchingNodes"), "False"),
        (CacheSummary(total=2, ready=2), ("True", "AllNodesReady"), "False"),
        (CacheSummary(total=2, ready=1), ("False", "NodesPending"), "False"),
        (CacheSummary(total=2, ready=1, failed=1, failures=FULL), ("False", "NodesFailed"), "True"),
        (CacheSummary(total=3, ready=1, failed=1, failures=FULL), ("False", "NodesFailed"), "True"),
        (
            CacheSummary(total=2, failed=1, failures=FULL, incompatible=1, misfits=UNFIT),
            ("False", "NodesFailed"),
            "True",
        ),
        (CacheSummary(total=2, incompatible=2, misfits=UNFIT), ("False", "NodesIncompatible"), "False"),
        (CacheSummary(total=3, ready=1, incompatible=2, misfits=UNFIT), ("True", "AllNodesReady"), "False"),
        (CacheSummary(total=3, incompatible=2, misfits=UNFIT), ("False", "NodesPending"), "False"),
    ],
)
def test_sums_become_conditions(summary: CacheSummary, ready: tuple[str, str], error: str) -> None:
    status = settled(summary)
    assert shown(status, "Ready") == ready
    assert shown(status, "Error") == (error, {"True": "NodeFailuresPresent", "False": "NoFailures"}[error])


def test_nodes_that_the_cache_does_not_fit_are_counted_apart() -> None:
    status = settled(CacheSummary(total=3, ready=1, incompatible=1, misfits=UNFIT))
    assert (status.total_nodes, status.ready_nodes, status.failed_nodes, status.incompatible_nodes) == (3, 1, 0, 1)
    assert (status.ready, status.failed_node_conditions) == ("1/2", {})
    assert status.incompatible_node_conditions == {"ArchitectureMismatch": ["n"]}
    ready = status.condition("Ready")
    assert ready
    assert ready.message == "1 of 2 nodes are ready, 0 failed, 1 incompatible (ArchitectureMismatch)"


def test_a_cache_that_fits_no_node_says_where_to_look() -> None:
    ready = settled(CacheSummary(total=2, incompatible=2, misfits=UNFIT)).condition("Ready")
    assert ready
    assert ready.message == (
        "the cache fits no GPU of the 2 nodes that report it (ArchitectureMismatch): see incompatibleNodeConditions"
    )


def test_pods_without_the_cache_become_a_condition() -> None:
    assert settled().condition("NoCacheForHardware") is None
    named = ("n1", "n2", "n3")
    affected = settled(CacheSummary(total=5, incompatible=5, unserved=5, unserved_named=named))
    assert shown(affected, "NoCacheForHardware") == ("True", "PodsAffected")
    condition = affected.condition("NoCacheForHardware")
    assert condition
    assert "pods on 5 nodes wait" in condition.message
    assert "n1, n2, n3 and 2 more" in condition.message
    later = desired_status(cache(affected), verdict_outcome(IMAGE, DIGEST, GOOD, ImageClaims(7)), NOBODY, NOW)
    assert later
    assert shown(later, "NoCacheForHardware") == ("False", "NoPodsAffected")


@pytest.mark.parametrize(
    ("selector", "labels"),
    [
        ({"b": "2", "a": "1"}, "a=1, b=2"),
        (dict.fromkeys("edcba", "v"), "a=v, b=v, c=v and 2 more"),
        ({"a": "\x1b]0;owned\a"}, r"a=\x1b]0;owned\x07"),
    ],
)
def test_the_condition_of_an_unreported_cache_names_the_expected_nodes(selector: dict[str, str], labels: str) -> None:
    selecting = structs.replace(cache(), spec=CacheSpec(IMAGE, node_selector=selector))
    status = desired_status(selecting, verdict_outcome(IMAGE, DIGEST, GOOD, ImageClaims(7)), NOBODY, THEN)
    assert status
    assert shown(status, "Ready") == ("False", "NoMatchingNodes")
    condition = status.condition("Ready")
    assert condition
    would = f"every node with a running agent and the labels of nodeSelector ({labels}) would"
    assert condition.message == f"no node reports this cache: {would}"
    every = settled().condition("Ready")
    assert every
    assert every.message == "no node reports this cache: every node with a GPU and a running agent would"


def test_without_a_positive_verdict_no_cache_is_ready() -> None:
    status = desired_status(
        cache(), verdict_outcome(IMAGE, DIGEST, UNSIGNED, ImageClaims(0)), CacheSummary(total=1, ready=1), NOW
    )
    assert status
    assert shown(status, "Ready") == ("False", "NotVerified")
    assert verified_digest(cache(status)) is None


def test_nothing_is_written_when_nothing_changed() -> None:
    status = settled()
    assert desired_status(cache(status), verdict_outcome(IMAGE, DIGEST, GOOD, ImageClaims(7)), NOBODY, NOW) == status


def test_times_change_only_with_their_subject() -> None:
    status = desired_status(
        cache(settled()), verdict_outcome(IMAGE, DIGEST, GOOD, ImageClaims(7)), CacheSummary(total=1, pods=1), NOW
    )
    assert status
    assert status.last_updated == NOW
    times = {condition.type: condition.last_transition_time for condition in status.conditions}
    assert times == {"Verified": THEN, "Error": THEN, "Ready": THEN}
    changed = desired_status(
        cache(status), verdict_outcome(IMAGE, DIGEST, UNSIGNED, ImageClaims(0)), CacheSummary(total=1, pods=1), NOW
    )
    assert changed
    verified = changed.condition("Verified")
    assert verified
    assert verified.last_transition_time == NOW


def test_after_a_restart_the_verdict_stays_until_the_next_one() -> None:
    status = desired_status(cache(settled()), None, CacheSummary(total=1, ready=1), NOW)
    assert status
    assert shown(status, "Verified") == ("True", "CosignSuccess")
    assert status.ready == "1/1"


def test_an_unchecked_image_has_no_condition() -> None:
    assert desired_status(cache(), None, NOBODY, NOW) is None
    moved = cache(settled(), image="registry.test/other:2", generation=2)
    assert desired_status(moved, None, NOBODY, NOW) is None
    assert desired_status(moved, verdict_outcome(IMAGE, DIGEST, GOOD, ImageClaims(7)), NOBODY, NOW) is None


def test_an_old_digest_is_never_used_for_a_new_image() -> None:
    moved = cache(settled(), image="registry.test/other:2", generation=2)
    outcome = error_outcome("registry.test/other:2", None, AWAY)
    assert resolved_digest(moved, outcome) is None
    status = desired_status(moved, outcome, NOBODY, NOW)
    assert status
    assert (status.image, status.resolved_digest) == (IMAGE, DIGEST)
    assert (status.observed_generation, shown(status, "Verified")) == (2, ("Unknown", "RegistryUnavailable"))
    assert verified_digest(cache(status, image="registry.test/other:2")) is None


def test_the_pinned_digest_is_that_of_the_present_image() -> None:
    good = verdict_outcome(IMAGE, OTHER, GOOD, ImageClaims(7))
    assert resolved_digest(cache(), None) is None
    assert resolved_digest(cache(), good) == OTHER
    assert resolved_digest(cache(settled()), None) == DIGEST
    assert resolved_digest(cache(settled(), image="other"), good) is None


def test_a_known_size_survives_a_check_without_a_size() -> None:
    status = desired_status(cache(settled()), verdict_outcome(IMAGE, DIGEST, GOOD, ImageClaims(0)), NOBODY, NOW)
    assert status
    assert status.size_bytes == 7


def test_the_runtime_is_that_of_the_image_and_survives_a_check_that_does_not_show_it() -> None:
    read = desired_status(cache(), verdict_outcome(IMAGE, DIGEST, GOOD, ImageClaims(7, runtime="vllm")), NOBODY, THEN)
    assert read
    assert read.runtime == "vllm"
    again = desired_status(cache(read), verdict_outcome(IMAGE, DIGEST, WARNED, ImageClaims(7)), NOBODY, NOW)
    assert again
    assert again.runtime == "vllm"
    moved = desired_status(cache(read), verdict_outcome(IMAGE, OTHER, GOOD, ImageClaims(7)), NOBODY, NOW)
    assert moved
    assert moved.runtime == ""


def test_zeros_are_explicit_and_names_complete() -> None:
    written = apply_configuration(cache(), settled())
    assert (written["apiVersion"], written["kind"]) == ("gkm.io/v1alpha1", "GKMCache")
    assert written["metadata"] == {"name": "x", "namespace": "a"}
    zeros = {name: written["status"][name] for name in (*COUNTS, "podsUsing")}
    assert set(zeros.values()) == {0}
    assert "spec" not in written
    cluster = ClusterGKMCache(ObjectMeta(name="x"), CacheSpec(IMAGE))
    assert apply_configuration(cluster, settled())["metadata"] == {"name": "x"}


def test_a_status_counts_for_the_object_that_it_was_made_from() -> None:
    found = cache()
    found = structs.replace(found, metadata=structs.replace(found.metadata, resource_version="41"))
    assert apply_configuration(found, settled())["metadata"]["resourceVersion"] == "41"


@pytest.mark.parametrize(
    ("nodes", "words"),
    [(1, ("0 of 1 node is ready", "1 node failed")), (2, ("0 of 2 nodes are ready", "2 nodes failed"))],
)
def test_sentences_agree_with_their_numbers(nodes: int, words: tuple[str, str]) -> None:
    status = settled(CacheSummary(total=nodes, failed=nodes, failures=FULL))
    said = [condition.message for kind in ("Ready", "Error") if (condition := status.condition(kind))]
    assert [text.startswith(begins) for text, begins in zip(said, words, strict=True)] == [True, True]


def test_another_controller_adds_a_condition_which_stays_until_it_says_another_one() -> None:
    current = ConditionValue("Retained", "True", "Current", "one of the newest")
    with_it = desired_status(cache(settled()), None, NOBODY, THEN, further=[current])
    assert with_it is not None
    assert shown(with_it, "Retained") == ("True", "Current")
    without = desired_status(cache(with_it), None, NOBODY, NOW)
    assert without is not None
    assert shown(without, "Retained") == ("True", "Current")
    changed = current._replace(status="False", reason="Expired")
    ended = desired_status(cache(with_it), None, NOBODY, NOW, further=[changed])
    assert ended is not None
    condition = ended.condition("Retained")
    assert condition is not None
    assert (condition.status, condition.reason, condition.last_transition_time) == ("False", "Expired", NOW)
