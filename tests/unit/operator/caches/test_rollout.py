"""How far a rollout is open, from the reports of nodes; and whole rollouts of nodes that obey it."""

import random
from dataclasses import dataclass, field

import pytest
from gkm.api.caches import CacheSpec, CacheStatus, GKMCache
from gkm.api.meta import ObjectMeta
from gkm.api.rollouts import LAST_RANK, RolloutPolicy, RolloutStatus, is_open, rank_of
from gkm_operator.caches.fleet import Fleet, UnfinishedNodes
from gkm_operator.caches.rollout import (
    LONGEST_SETTLE_SECONDS,
    SETTLE_SECONDS,
    STALL_SECONDS,
    Settling,
    Stalls,
    opened,
)
from gkm_operator.caches.totals import CacheKey
from msgspec import structs
from support.operator.images import DIGEST, OTHER
from support.operator.nodes import a_report

KEY = CacheKey("a", "x")
READY = {"state": "Ready", "digest": DIGEST}


def a_cache(nodes: int | None, rollout: RolloutStatus | None = None) -> GKMCache:
    policy = RolloutPolicy(nodes) if nodes else None
    return GKMCache(ObjectMeta("x", "a"), CacheSpec("r.example/x:1", rollout=policy), CacheStatus(rollout=rollout))


def in_order(*nodes: str) -> list[str]:
    return sorted(nodes, key=lambda node: rank_of(node, DIGEST))


NODES = in_order(*(f"node-{number}" for number in range(50)))


def test_without_a_policy_there_is_no_rollout() -> None:
    assert opened(a_cache(None, RolloutStatus(DIGEST, LAST_RANK)), DIGEST, UnfinishedNodes(NODES)) is None


@pytest.mark.parametrize("number", [1, 7, 50])
def test_exactly_as_many_places_are_open_as_the_policy_states(number: int) -> None:
    found = opened(a_cache(number), DIGEST, UnfinishedNodes(NODES))
    assert found is not None
    admitted = [node for node in NODES if is_open(RolloutPolicy(number), found, node, DIGEST)]
    assert admitted == NODES[:number]


def test_a_node_that_finishes_makes_way_for_the_next() -> None:
    first = opened(a_cache(2), DIGEST, UnfinishedNodes(NODES))
    assert opened(a_cache(2, first), DIGEST, UnfinishedNodes(NODES[1:])) == RolloutStatus(
        DIGEST, rank_of(NODES[2], DIGEST)
    )


def test_a_node_that_has_begun_is_not_stopped_by_one_with_an_earlier_place() -> None:
    begun = opened(a_cache(1), DIGEST, UnfinishedNodes(NODES[5:]))
    assert opened(a_cache(1, begun), DIGEST, UnfinishedNodes(NODES)) == begun


def test_the_places_of_an_earlier_image_do_not_count() -> None:
    old = RolloutStatus(OTHER, LAST_RANK)
    assert opened(a_cache(1, old), DIGEST, UnfinishedNodes(NODES)) == RolloutStatus(DIGEST, rank_of(NODES[0], DIGEST))


def test_when_every_node_has_finished_all_places_are_open() -> None:
    assert opened(a_cache(1), DIGEST, UnfinishedNodes([])) == RolloutStatus(DIGEST, LAST_RANK)


@pytest.mark.parametrize(
    ("report", "unfinished"),
    [
        ({"state": "Pending"}, True),
        ({"state": "Downloading", "digest": DIGEST}, True),
        ({"state": "Extracting", "digest": DIGEST}, True),
        ({"state": "Ready", "digest": OTHER}, True),
        ({"state": "Failed", "digest": DIGEST, "reason": "RegistryUnavailable"}, True),
        ({"state": "Failed", "digest": DIGEST, "reason": "Unauthorized"}, True),
        ({"state": "Failed", "digest": DIGEST, "reason": "NotFound"}, True),
        ({"state": "Pending", "reason": "RegistryUnavailable"}, True),
        ({"state": "Failed", "reason": "SignatureMissing"}, True),
        ({"state": "Failed", "digest": OTHER, "reason": "DiskFull"}, True),
        ({"state": "strange"}, True),
        (READY, False),
        ({"state": "Pending", "digest": DIGEST, "reason": "GPULost"}, False),
        ({"state": "Failed", "digest": DIGEST, "reason": "DiskFull"}, False),
        ({"state": "Failed", "digest": DIGEST, "reason": "SignatureInvalid"}, False),
        ({"state": "Incompatible", "digest": DIGEST, "reason": "NoGPU"}, False),
        ({"state": "Deleting", "digest": DIGEST}, False),
        ({"state": "strange", "digest": DIGEST}, False),
    ],
)
def test_only_a_node_that_pulls_or_will_pull_holds_a_place(
    report: dict[str, str],
    unfinished: bool,  # noqa: FBT001 -- a column
) -> None:
    fleet = Fleet()
    fleet.node("n", ready=True)
    fleet.reported(None, a_report("n", {"x": report, "y": {"state": "Pending"}}))
    assert fleet.unfinished(KEY, DIGEST) == (["n"] if unfinished else [], [])


def test_a_node_that_does_not_answer_is_unfinished_until_it_is_removed() -> None:
    fleet = Fleet()
    fleet.node("n", ready=True)
    fleet.reported(None, a_report("n", {"x": {"state": "Pending"}}))
    fleet.node("n", ready=False)
    assert fleet.unfinished(KEY, DIGEST) == ([], ["n"])
    fleet.node("n", ready=None)
    assert fleet.unfinished(KEY, DIGEST) == ([], [])


def test_caches_of_the_same_name_elsewhere_do_not_count() -> None:
    fleet = Fleet()
    fleet.node("n", ready=True)
    fleet.reported(None, a_report("n", {"x": {"state": "Pending"}}, None))
    assert fleet.unfinished(KEY, DIGEST) == ([], [])
    assert fleet.unfinished(CacheKey("", "x"), DIGEST) == (["n"], [])


@pytest.mark.parametrize("live", [0, 1, 12])
def test_nodes_that_fall_silent_together_open_nothing(live: int) -> None:
    begun = opened(a_cache(10), DIGEST, UnfinishedNodes(NODES))
    found = opened(a_cache(10, begun), DIGEST, UnfinishedNodes(NODES[-live:] if live else [], NODES[: 50 - live]))
    assert found == begun


def test_silent_nodes_count_when_a_rollout_begins() -> None:
    found = opened(a_cache(3), DIGEST, UnfinishedNodes(NODES[40:], NODES[:40]))
    assert found == RolloutStatus(DIGEST, rank_of(NODES[2], DIGEST))


def test_after_a_stall_the_open_and_the_silent_nodes_make_way_for_the_next() -> None:
    begun = opened(a_cache(2), DIGEST, UnfinishedNodes(NODES))
    stuck = UnfinishedNodes([*NODES[:2], *NODES[4:]], NODES[2:4])
    assert opened(a_cache(2, begun), DIGEST, stuck) == begun
    after = opened(a_cache(2, begun), DIGEST, stuck, is_stalled=True)
    assert after == RolloutStatus(DIGEST, rank_of(NODES[5], DIGEST))
    assert opened(a_cache(2, after), DIGEST, UnfinishedNodes(NODES[:2], NODES[2:4]), is_stalled=True) == RolloutStatus(
        DIGEST, LAST_RANK
    )


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def test_reports_settle_when_no_node_has_been_added_for_a_while() -> None:
    clock = Clock()
    settling = Settling(clock)
    assert settling.remaining(KEY, DIGEST, 1) == SETTLE_SECONDS
    clock.now += 9
    assert settling.remaining(KEY, DIGEST, 1) == SETTLE_SECONDS - 9
    assert settling.remaining(KEY, DIGEST, 2) == SETTLE_SECONDS
    clock.now += 4
    assert settling.remaining(KEY, DIGEST, 1) == SETTLE_SECONDS - 4
    clock.now += 6
    assert settling.remaining(KEY, DIGEST, 2) == 0
    assert settling.remaining(KEY, OTHER, 2) == SETTLE_SECONDS


def test_a_rollout_has_stalled_when_its_rank_has_been_the_same_for_a_while() -> None:
    clock = Clock()
    stalls = Stalls(clock)
    assert stalls.remaining(KEY, DIGEST, "a") == STALL_SECONDS
    clock.now += STALL_SECONDS - 1
    assert stalls.remaining(KEY, DIGEST, "a") == 1
    assert stalls.remaining(KEY, DIGEST, "b") == STALL_SECONDS
    clock.now += STALL_SECONDS
    assert stalls.remaining(KEY, DIGEST, "b") == 0
    assert stalls.remaining(KEY, OTHER, "b") == STALL_SECONDS


def test_nodes_that_come_all_the_time_delay_a_rollout_for_a_bounded_time() -> None:
    clock = Clock()
    settling = Settling(clock)
    seconds = 0
    while settling.remaining(KEY, DIGEST, seconds + 1) > 0:
        clock.now += 1
        seconds += 1
        assert seconds <= LONGEST_SETTLE_SECONDS
    assert seconds == LONGEST_SETTLE_SECONDS


@dataclass
class Rollout:
    """Nodes that obey a rollout, and the controller's part of it; the reports arrive late and in any order."""

    number: int
    nodes: list[str]
    chance: random.Random
    cache: GKMCache = field(init=False)
    done: set[str] = field(default_factory=set)
    pulling: set[str] = field(default_factory=set)
    reported: set[str] = field(default_factory=set)
    most: int = 0

    def __post_init__(self) -> None:
        self.cache = a_cache(self.number)

    def step(self) -> None:
        unfinished = [node for node in self.nodes if node not in self.reported]
        status = structs.replace(self.cache.status, rollout=opened(self.cache, DIGEST, UnfinishedNodes(unfinished)))
        self.cache = structs.replace(self.cache, status=status)
        for node in self.nodes:
            if node not in self.done and is_open(self.cache.spec.rollout, status.rollout, node, DIGEST):
                self.pulling.add(node)
        self.most = max(self.most, len(self.pulling))
        finished = {node for node in self.pulling if self.chance.random() < 0.3}
        self.pulling -= finished
        self.done |= finished
        self.reported |= {node for node in self.done if self.chance.random() < 0.7}


@pytest.mark.parametrize("number", [1, 3, 10, 50, 1000])
@pytest.mark.parametrize("seed", range(5))
def test_a_whole_rollout_ends_and_never_exceeds_its_bound(number: int, seed: int) -> None:
    rollout = Rollout(number, NODES, random.Random(seed))
    for _ in range(2000):
        rollout.step()
        if len(rollout.reported) == len(NODES):
            break
    assert rollout.done == set(NODES)
    assert rollout.most <= number
    rollout.step()
    assert rollout.cache.status.rollout == RolloutStatus(DIGEST, LAST_RANK)
