"""A family on a real node: pods of one manifest run the real torch.compile, and share its graphs.

Torch compiles for the processor here. So the pods share graphs, and each of them builds the code for its processor.
"""

from collections.abc import Iterator

import pytest
from support.e2e.families import Family, capturing
from support.e2e.fleet import Fleet
from support.peers import require
from support.torch import installation as torch
from support.torch.cache import HIT, MISS, counted

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def just_in_time(fleet: Fleet) -> Iterator[Fleet]:
    """The node with a registry and a signer for captures, and a driver that captures private volumes."""
    require.command("g++", "g++")
    with require.absences():
        torch.python()
    with capturing(fleet, "auto"):
        yield fleet


def test_pods_of_one_manifest_compile_each_graph_once(just_in_time: Fleet, namespace: str) -> None:
    fleet, node = just_in_time, just_in_time.cluster.node_name
    family = Family(fleet, namespace)
    first = family.compiled_by_torch()
    assert counted(first) == MISS
    family.ready(1, node)
    second = family.compiled_by_torch()
    assert counted(second) == HIT
    assert second.results == first.results

    assert counted(family.compiled_by_torch("--rows", 17)) == MISS
    family.ready(2, node)
    for name in ("agent", "controllers", "csi"):
        fleet.kill(name)
        fleet.gkm.run(name)
    assert counted(family.compiled_by_torch("--rows", 17)) == HIT
    assert counted(family.compiled_by_torch()) == HIT
    assert set(family.generations()) == {1, 2}
