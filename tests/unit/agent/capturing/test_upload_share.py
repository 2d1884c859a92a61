"""How many nodes begin to push one content before the first of them is done, by the number of nodes."""

import math
from statistics import mean

import pytest
from gkm_agent.capturing.worker import LONGEST_SHARE_SECONDS, STEEPNESS, upload_share

CONTENTS = 300


def copies(nodes: int, upload_seconds: float) -> float:
    """Return the uploads that begin before the first one has ended, on the average over contents."""
    found = []
    for content in range(CONTENTS):
        times = sorted(upload_share(f"sha256:{content}", f"node-{number}") for number in range(nodes))
        found.append(sum(time < times[0] + upload_seconds for time in times))
    return mean(found)


def expected_copies(nodes: int, upload_seconds: float, steps: int = 10_000) -> float:
    """Return the expected `copies` for independent times of which late ones are more frequent.

    The share of times before t is F(t) = expm1(STEEPNESS * t / LONGEST_SHARE_SECONDS) / expm1(STEEPNESS). The first of
    n times is at F = 1 - (1 - v)^(1/n), for v uniform in 0 to 1.
    """
    total = 0.0
    for step in range(steps):
        first = 1 - (1 - (step + 0.5) / steps) ** (1 / nodes)
        time = LONGEST_SHARE_SECONDS * math.log1p(first * math.expm1(STEEPNESS)) / STEEPNESS
        end = math.expm1(STEEPNESS * (time + upload_seconds) / LONGEST_SHARE_SECONDS) / math.expm1(STEEPNESS)
        total += 1 + (nodes - 1) * (min(1.0, end) - first) / (1 - first)
    return total / steps


# The figures of docs/decisions/0046-families.md.
@pytest.mark.parametrize(
    ("nodes", "short", "long"), [(1, 1.0, 1.0), (10, 1.6, 7.4), (50, 1.6, 14.0), (1_000, 2.1, 25.5)]
)
def test_the_number_of_copies_is_the_expected_one(nodes: int, short: float, long: float) -> None:
    for upload_seconds, documented in ((0.5, short), (3.0, long)):
        expected = expected_copies(nodes, upload_seconds)
        assert expected == pytest.approx(documented, abs=0.06)
        assert copies(nodes, upload_seconds) == pytest.approx(expected, rel=0.15)


def test_a_single_node_waits_for_most_of_the_longest_time() -> None:
    """The price of few copies: nodes cannot know whether they are alone."""
    waited = mean(upload_share(f"sha256:{content}", "node-0") for content in range(3_000))
    assert waited == pytest.approx(LONGEST_SHARE_SECONDS * (1 - 1 / STEEPNESS), rel=0.02)


@pytest.mark.parametrize("nodes", [1, 10, 50, 1_000])
def test_a_short_upload_is_made_about_once(nodes: int) -> None:
    assert copies(nodes, 0.2) <= 1.5


def test_a_long_upload_is_made_by_a_few_nodes_and_not_by_all() -> None:
    assert copies(1_000, 2.0) <= 14


def test_every_node_pushes_within_the_longest_time_and_the_same_one_at_the_same_time() -> None:
    times = [upload_share("sha256:1", f"node-{number}") for number in range(1_000)]
    assert 0 <= min(times) < max(times) <= LONGEST_SHARE_SECONDS
    assert upload_share("sha256:1", "node-1") == times[1]
    assert len(set(times)) == len(times)
