"""What nodes report, summed by differences, is what a full count comes to."""

import json
from collections.abc import Mapping

from gkm.kube import decoding
from gkm_operator.caches.contributions import NODES, Contribution, Node, NodeCache, of_cache, of_node
from gkm_operator.caches.tally import CacheKey, Fleet, Summary
from hypothesis import given
from hypothesis import strategies as st
from operator_images import DIGEST, OTHER
from operator_site import node as node_object

KEY = CacheKey("a", "x")
READY = Contribution(DIGEST, ready=True, failure="", pods=0)


def a_node(**caches: dict[str, object]) -> Node:
    """Return a node as it comes from the API."""
    return decoding.one(NODES, json.dumps(node_object("n", caches, "a")).encode())


def test_a_node_contributes_by_state() -> None:
    parts = of_node(
        a_node(
            ready={"state": "Ready", "digest": DIGEST, "pods": [{"name": "p"}, {"name": "q"}]},
            pending={"state": "Pending"},
            failed={"state": "Failed", "digest": DIGEST, "reason": "DiskFull"},
            unfit={"state": "Incompatible", "incompatibleGPUs": [{"ids": [0], "reason": "NoGPU", "message": "m"}]},
            mute={"state": "Failed"},
        )
    )
    assert parts == {
        "ready": Contribution(DIGEST, ready=True, failure="", pods=2),
        "pending": Contribution("", ready=False, failure="", pods=0),
        "failed": Contribution(DIGEST, ready=False, failure="DiskFull", pods=0),
        "unfit": Contribution("", ready=False, failure="NoGPU", pods=0),
        "mute": Contribution("", ready=False, failure="Failed", pods=0),
    }
    assert of_node(None) == {}


def test_nodes_that_are_alike_share_their_contribution() -> None:
    assert of_cache(NodeCache("Ready", DIGEST)) is of_cache(NodeCache("Ready", DIGEST))


def test_a_change_names_the_caches_whose_sums_it_changed() -> None:
    fleet = Fleet()
    other = Contribution("", ready=False, failure="", pods=0)
    assert fleet.change("a", "n", {}, {"x": READY, "y": other}) == {KEY, CacheKey("a", "y")}
    assert fleet.change("a", "n", {"x": READY, "y": other}, {"x": READY}) == {CacheKey("a", "y")}
    assert fleet.change("a", "n", {"x": READY}, {"x": READY}) == set()
    assert fleet.change("", "n", {}, {"x": READY}) == {CacheKey("", "x")}
    assert fleet.summary(KEY, DIGEST) == Summary(total=1, ready=1)
    assert fleet.summary(CacheKey("b", "x"), DIGEST) == Summary()


def test_a_node_with_the_old_digest_is_not_ready_for_the_new() -> None:
    fleet = Fleet()
    fleet.change("a", "n", {}, {"x": READY})
    assert fleet.summary(KEY, OTHER) == Summary(total=1)
    assert fleet.summary(KEY, None) == Summary(total=1)


def test_a_failure_counts_for_its_digest_and_one_before_any_digest_for_all() -> None:
    fleet = Fleet()
    for name, digest in (("old", OTHER), ("now", DIGEST), ("early", "")):
        fleet.change("a", name, {}, {"x": Contribution(digest, ready=False, failure="DiskFull", pods=0)})
    assert fleet.summary(KEY, DIGEST).failures == {"DiskFull": ["early", "now"]}
    assert fleet.summary(KEY, None).failures == {"DiskFull": ["early"]}


def test_at_most_twenty_nodes_are_named_by_reason() -> None:
    fleet = Fleet()
    for number in range(25):
        part = Contribution(DIGEST, ready=False, failure="NoGPU", pods=0)
        fleet.change("a", f"node-{number:02}", {}, {"x": part})
    summary = fleet.summary(KEY, DIGEST)
    assert summary.failed == 25
    assert summary.failures["NoGPU"] == [*(f"node-{number:02}" for number in range(20)), "and 5 more"]


def test_a_cache_is_called_what_every_process_calls_it() -> None:
    assert (str(KEY), str(CacheKey("", "x"))) == ("GKMCache a/x", "ClusterGKMCache x")


parts = st.builds(
    Contribution,
    digest=st.sampled_from(["", DIGEST, OTHER]),
    ready=st.booleans(),
    failure=st.sampled_from(["", "NoGPU", "DiskFull"]),
    pods=st.integers(0, 3),
)
events = st.lists(
    st.tuples(st.sampled_from(["n1", "n2", "n3"]), st.dictionaries(st.sampled_from(["x", "y"]), parts)), max_size=30
)


@given(events)
def test_sums_kept_by_differences_equal_a_full_count(changes: list[tuple[str, dict[str, Contribution]]]) -> None:
    fleet = Fleet()
    present: dict[str, Mapping[str, Contribution]] = {}
    for name, caches in changes:
        fleet.change("a", name, present.get(name, {}), caches)
        present[name] = caches
    for cache in ("x", "y"):
        for digest in (None, DIGEST, OTHER):
            assert fleet.summary(CacheKey("a", cache), digest) == counted(present, cache, digest)
    for name, last in present.items():
        fleet.change("a", name, last, {})
    assert fleet._tallies == {}


def counted(present: Mapping[str, Mapping[str, Contribution]], cache: str, digest: str | None) -> Summary:
    mine = {name: caches[cache] for name, caches in present.items() if cache in caches}
    failures: dict[str, list[str]] = {}
    for name, part in sorted(mine.items()):
        if part.failure and part.digest in {"", digest or ""}:
            failures.setdefault(part.failure, []).append(name)
    return Summary(
        total=len(mine),
        ready=sum(part.ready and part.digest == digest for part in mine.values()),
        failed=sum(map(len, failures.values())),
        pods=sum(part.pods for part in mine.values()),
        failures=failures,
    )
