"""How many nodes begin to push one content before the first of them is done, by the number of nodes."""

from statistics import mean

import pytest
from gkm_agent.capturing.upload_share import LONGEST_SECONDS, seconds

CONTENTS = 300


def copies(nodes: int, upload_seconds: float) -> float:
    """Return the uploads that begin before the first one has ended, on the average over contents."""
    found = []
    for content in range(CONTENTS):
        times = sorted(seconds(f"sha256:{content}", f"node-{number}") for number in range(nodes))
        found.append(sum(time < times[0] + upload_seconds for time in times))
    return mean(found)


@pytest.mark.parametrize("nodes", [1, 10, 50, 1_000])
def test_a_short_upload_is_made_about_once(nodes: int) -> None:
    assert copies(nodes, 0.2) <= 1.5


def test_a_long_upload_is_made_by_a_few_nodes_and_not_by_all() -> None:
    assert copies(1_000, 2.0) <= 14


def test_every_node_pushes_within_the_longest_time_and_the_same_one_at_the_same_time() -> None:
    times = [seconds("sha256:1", f"node-{number}") for number in range(1_000)]
    assert 0 <= min(times) < max(times) <= LONGEST_SECONDS
    assert seconds("sha256:1", "node-1") == times[1]
    assert len(set(times)) == len(times)
