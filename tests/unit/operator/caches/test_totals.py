"""The reports of nodes, summed by differences; and the bounds on an agent's text."""

import pytest
from gkm_operator.caches.fleet import Fleet
from gkm_operator.caches.node_reports import MAX_CACHES, NodeCache, NodeReport, report_of, reports_of
from gkm_operator.caches.totals import MAX_REASONS, CacheKey, CacheSummary
from support.operator.images import DIGEST, OTHER
from support.operator.nodes import a_report

KEY = CacheKey("a", "x")
READY = {"state": "Ready", "digest": DIGEST}
FAILED = {"state": "Failed", "digest": DIGEST, "reason": "DiskFull"}


def a_fleet(*nodes: str) -> Fleet:
    """Return a fleet of Nodes that are Ready."""
    fleet = Fleet()
    for name in nodes:
        fleet.node(name, ready=True)
    return fleet


def test_a_node_contributes_by_state() -> None:
    parts = reports_of(
        a_report(
            "n",
            {
                "ready": READY | {"pods": [{"name": "p"}, {"name": "q"}]},
                "pending": {"state": "Pending"},
                "failed": FAILED,
                "unfit": {"state": "Incompatible", "incompatibleGPUs": [{"ids": [0], "reason": "NoGPU"}]},
                "unserved": {"state": "Incompatible", "reason": "NoGPU", "podsWithoutCache": 2},
                "awaited": {"state": "Incompatible", "reason": "NoGPU", "podWaits": True},
                "lost": {"state": "Incompatible", "digest": DIGEST, "reason": "GPULost", "podWaits": True},
                "unstated": {"state": "Incompatible", "reason": "MetadataMissing"},
                "odd": {"state": "Incompatible", "reason": "no word"},
                "waits": {"state": "Pending", "podsWithoutCache": 2, "podWaits": True},
                "mute": {"state": "Failed"},
                "left": {"state": "Deleting", "digest": DIGEST, "pods": [{"name": "p"}]},
                "strange": {"state": "ready", "digest": DIGEST, "reason": "DiskFull"},
            },
        )
    )
    assert parts == {
        "ready": NodeReport(DIGEST, ready=True, failure="", pods=2),
        "pending": NodeReport("", ready=False, failure="", pods=0, pulls=True),
        "failed": NodeReport(DIGEST, ready=False, failure="DiskFull", pods=0),
        "unfit": NodeReport("", ready=False, failure="", pods=0, misfit="NoGPU"),
        "unserved": NodeReport("", ready=False, failure="", pods=0, misfit="NoGPU", unserved=True),
        "awaited": NodeReport("", ready=False, failure="", pods=0, misfit="NoGPU", unserved=True),
        "lost": NodeReport(DIGEST, ready=False, failure="GPULost", pods=0, unserved=True),
        "unstated": NodeReport("", ready=False, failure="MetadataMissing", pods=0),
        "odd": NodeReport("", ready=False, failure="", pods=0, misfit="Unknown"),
        "waits": NodeReport("", ready=False, failure="", pods=0, pulls=True),
        "mute": NodeReport("", ready=False, failure="Failed", pods=0),
        "left": NodeReport(DIGEST, ready=False, failure="", pods=1, leaving=True),
        "strange": NodeReport(DIGEST, ready=False, failure="", pods=0),
    }
    assert reports_of(None) == {}


def test_equal_nodes_share_one_report_object() -> None:
    assert report_of(NodeCache("Ready", DIGEST)) is report_of(NodeCache("Ready", DIGEST))


@pytest.mark.parametrize("reason", ["PTXTooNew", "X", "A" * 64])
def test_a_reason_in_camel_case_is_used(reason: str) -> None:
    assert report_of(NodeCache("Failed", reason=reason)).failure == reason


@pytest.mark.parametrize("reason", ["diskFull", "Disk full", "Disk\n", "A" * 65, "Ünfit", "7Dwarfs", "a.b"])
def test_a_reason_in_another_format_is_replaced(reason: str) -> None:
    assert report_of(NodeCache("Failed", reason=reason)).failure == "Unknown"


def test_of_too_many_caches_the_first_by_name_count() -> None:
    caches = {f"x-{number:05}": READY for number in range(MAX_CACHES + 1)}
    backwards = dict(reversed(caches.items()))
    parts = reports_of(a_report("n", backwards))
    assert len(parts) == MAX_CACHES
    assert f"x-{MAX_CACHES:05}" not in parts
    assert parts == reports_of(a_report("n", caches))


def test_a_change_names_the_caches_whose_sums_it_changed() -> None:
    fleet = a_fleet("n")
    both, one = a_report("n", {"x": READY, "y": {"state": "Pending"}}), a_report("n", {"x": READY})
    assert fleet.reported(None, both) == {KEY, CacheKey("a", "y")}
    assert fleet.reported(both, one) == {CacheKey("a", "y")}
    assert fleet.reported(one, a_report("n", {"x": READY | {"message": "again"}})) == set()
    assert fleet.reported(None, a_report("n", {"x": READY}, None)) == {CacheKey("", "x")}
    assert fleet.summary(KEY, DIGEST) == CacheSummary(total=1, ready=1)
    assert fleet.summary(CacheKey("b", "x"), DIGEST) == CacheSummary()


def test_a_node_with_the_old_digest_is_not_ready_for_the_new() -> None:
    fleet = a_fleet("n")
    fleet.reported(None, a_report("n", {"x": READY}))
    assert fleet.summary(KEY, OTHER) == CacheSummary(total=1)
    assert fleet.summary(KEY, None) == CacheSummary(total=1)


def test_a_node_that_no_longer_wants_the_cache_adds_its_pods_only() -> None:
    fleet = a_fleet("a", "b")
    fleet.reported(None, a_report("a", {"x": READY}))
    leaving = a_report("b", {"x": {"state": "Deleting", "digest": OTHER, "pods": [{"name": "p"}]}})
    fleet.reported(None, leaving)
    found = fleet.summary(KEY, DIGEST)
    assert (found.total, found.ready, found.pods) == (1, 1, 1)
    fleet.node("b", ready=False)
    assert fleet.summary(KEY, DIGEST).silent == 0
    fleet.reported(leaving, None)
    assert fleet.summary(KEY, DIGEST) == CacheSummary(total=1, ready=1)


def test_a_failure_counts_for_its_digest_and_without_a_digest_for_all() -> None:
    fleet = a_fleet("old", "now", "early")
    for name, digest in (("old", OTHER), ("now", DIGEST), ("early", None)):
        fleet.reported(None, a_report(name, {"x": FAILED | {"digest": digest}}))
    assert fleet.summary(KEY, DIGEST).failures == {"DiskFull": ["early", "now"]}
    assert fleet.summary(KEY, None).failures == {"DiskFull": ["early"]}


def test_nodes_that_the_cache_does_not_fit_are_not_among_those_that_failed() -> None:
    fleet = a_fleet("old", "now", "early", "failed")
    unfit = {"state": "Incompatible", "reason": "ArchitectureMismatch"}
    for name, digest in (("old", OTHER), ("now", DIGEST), ("early", None)):
        fleet.reported(None, a_report(name, {"x": unfit | {"digest": digest}}))
    fleet.reported(None, a_report("failed", {"x": FAILED}))
    summary = fleet.summary(KEY, DIGEST)
    assert (summary.total, summary.failed, summary.failures) == (4, 1, {"DiskFull": ["failed"]})
    assert (summary.incompatible, summary.misfits) == (2, {"ArchitectureMismatch": ["early", "now"]})
    assert summary.fitting == 2
    fleet.reported(a_report("now", {"x": unfit | {"digest": DIGEST}}), a_report("now", {"x": READY}))
    assert fleet.summary(KEY, DIGEST).misfits == {"ArchitectureMismatch": ["early"]}


def test_at_most_twenty_nodes_are_named_by_reason() -> None:
    names = [f"node-{number:02}" for number in range(25)]
    fleet = a_fleet(*names)
    for name in reversed(names):
        fleet.reported(None, a_report(name, {"x": FAILED}))
    summary = fleet.summary(KEY, DIGEST)
    assert summary.failed == 25
    assert summary.failures == {"DiskFull": [*names[:20], "and 5 more"]}


def test_reasons_of_few_nodes_do_not_displace_those_of_many() -> None:
    liars = [f"liar-{number:02}" for number in range(MAX_REASONS + 8)]
    fleet = a_fleet("n1", "n2", *liars)
    for name in ("n1", "n2"):
        fleet.reported(None, a_report(name, {"x": FAILED | {"reason": "ZoneDown"}}))
    for name in liars:
        fleet.reported(None, a_report(name, {"x": FAILED | {"reason": "A" + name[-2:]}}))
    fleet.reported(None, a_report("liar-99", {"x": FAILED}))  # of no Node: counted nowhere
    summary = fleet.summary(KEY, DIGEST)
    assert summary.failed == 2 + len(liars)
    assert len(summary.failures) == MAX_REASONS
    assert summary.failures["ZoneDown"] == ["n1", "n2"]
    assert summary.failures["Other"] == liars[MAX_REASONS - 2 :]
    assert list(summary.failures) == sorted(summary.failures)


def test_an_agent_may_report_the_reason_that_stands_for_the_rest() -> None:
    names = [f"n-{number:02}" for number in range(MAX_REASONS + 1)]
    fleet = a_fleet(*names, "o1", "o2")
    for name in names:
        fleet.reported(None, a_report(name, {"x": FAILED | {"reason": "R" + name[-2:]}}))
    for name in ("o1", "o2"):
        fleet.reported(None, a_report(name, {"x": FAILED | {"reason": "Other"}}))
    failures = fleet.summary(KEY, DIGEST).failures
    assert len(failures) <= MAX_REASONS
    assert {"o1", "o2"} < set(failures["Other"])
    assert sorted(name for named in failures.values() for name in named) == sorted([*names, "o1", "o2"])


def test_a_cache_key_reads_as_in_every_process() -> None:
    assert (str(KEY), str(CacheKey("", "x"))) == ("GKMCache a/x", "ClusterGKMCache x")
