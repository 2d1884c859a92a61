"""How many ComputeDomains a namespace may create in some time, whatever its workloads do."""

from collections.abc import Sequence

import pytest
from gkm_operator.computedomains.pacing import (
    CREATION_BATCH,
    CREATION_BURST,
    CREATIONS_PER_SECOND,
    LONGEST_SECONDS,
    CreationPacing,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples

NAMESPACE = "team"


class Clock:
    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds


def creations(pacing: CreationPacing, workload: str, missing: int, namespace: str = NAMESPACE) -> int:
    """Create what a workload lacks, as far as it may now; return how much that is."""
    made = 0
    while made < missing and pacing.seconds(namespace, workload, missing - made) <= 0:
        made += 1
    return made


Steps = Sequence[tuple[int, int, float]]


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 200), st.floats(0.0, 40.0)), max_size=60))
def test_in_no_time_more_than_the_burst_and_the_rate_are_created(steps: Steps) -> None:
    clock = Clock()
    pacing = CreationPacing(clock)
    made: list[tuple[float, int]] = []
    for workload, missing, pause in steps:
        made.append((clock.seconds, creations(pacing, str(workload), missing)))
        clock.seconds += pause
    for first, (began, _) in enumerate(made):
        total = 0
        for when, number in made[first:]:
            total += number
            # Reservations of the six workloads may come due together.
            assert total <= CREATION_BURST + CREATIONS_PER_SECOND * (when - began) + 6 * CREATION_BATCH + 1


@pytest.mark.parametrize("start", [0.0, 1e6])
def test_a_namespace_that_rested_has_its_whole_burst(start: float) -> None:
    clock = Clock(start)
    pacing = CreationPacing(clock)
    for _ in range(3):
        assert creations(pacing, "a", 1000) == CREATION_BURST
        clock.seconds += CREATION_BURST / CREATIONS_PER_SECOND + CREATION_BATCH / CREATIONS_PER_SECOND
        assert creations(pacing, "a", 1) == 1
        clock.seconds += CREATION_BURST / CREATIONS_PER_SECOND
        creations(pacing, "a", CREATION_BATCH - 1)
        clock.seconds += CREATION_BURST / CREATIONS_PER_SECOND


def test_workloads_that_wait_get_some_each_when_they_come_back_in_time() -> None:
    clock = Clock()
    pacing = CreationPacing(clock)
    creations(pacing, "first", CREATION_BURST)
    waits = {name: pacing.seconds(NAMESPACE, name, 50) for name in "abcdef"}
    assert list(waits.values()) == pytest.approx(
        [CREATION_BATCH / CREATIONS_PER_SECOND * number for number in range(1, 7)]
    )
    for name, wait in waits.items():
        assert creations(pacing, name, 50) == 0
        clock.seconds = wait + 0.01
        assert creations(pacing, name, 50) == CREATION_BATCH


def test_workloads_that_were_deleted_do_not_stop_their_namespace() -> None:
    clock = Clock()
    pacing = CreationPacing(clock)
    creations(pacing, "first", CREATION_BURST)
    for number in range(5000):
        assert 0 < pacing.seconds(NAMESPACE, str(number), 50) <= LONGEST_SECONDS
    clock.seconds += LONGEST_SECONDS + 1
    assert creations(pacing, "new", 2) == 2


def test_another_namespace_has_a_burst_of_its_own() -> None:
    pacing = CreationPacing(Clock())
    assert creations(pacing, "a", 1000) == CREATION_BURST
    assert creations(pacing, "b", 1000, "other") == CREATION_BURST
