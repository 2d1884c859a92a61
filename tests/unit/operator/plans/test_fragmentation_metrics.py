"""The gauges of free and fragmented GPUs: sums by hand, one measurement a state, and few of them."""

from collections.abc import Mapping

import pytest
from gkm.api.topology_settings import MixGroup
from gkm.topology.usage import Usage
from gkm_operator import metrics
from gkm_operator.plans.planning.fragmentation_metrics import SECONDS, FragmentationMetrics, free_nodes
from support.operator.plans import gpu_node
from support.operator.plans_made import a_survey, fleet

GROUPS_OF_16 = (MixGroup(16, 8, 1),)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def gauge(name: str, labels: Mapping[str, str] | None = None) -> float | None:
    return metrics.REGISTRY.get_sample_value(name, dict(labels or {}))


def test_the_gauges_count_pods_and_plans() -> None:
    # d0: 8 of 16 free, no group of 16 fits. d1: all 24 free, one group leaves 8.
    survey = a_survey(*fleet(1), *(gpu_node(f"d1-n{number}", "d1") for number in range(3)))
    measured = FragmentationMetrics(GROUPS_OF_16, Clock())
    measured.update(1, survey, Usage({"d0-n0": 4}), {"d0-n0": 4})
    assert gauge("gkm_free_gpus", {"level": "all"}) == 32
    assert gauge("gkm_free_gpus", {"level": "domain"}) == 24
    assert gauge("gkm_unusable_gpus", {"level": "all"}) == 16
    assert gauge("gkm_unusable_gpus", {"level": "domain"}) == 8
    assert gauge("gkm_largest_group_gpus") == 24


def test_a_state_is_measured_once_and_changes_only_every_few_seconds() -> None:
    survey, clock = a_survey(*fleet()), Clock()
    measured = FragmentationMetrics(GROUPS_OF_16, clock)
    measured.update(1, survey, Usage(), {})
    measured.update(2, survey, Usage({"d0-n0": 8}), {})
    assert gauge("gkm_free_gpus", {"level": "all"}) == 32
    clock.now += SECONDS
    measured.update(2, survey, Usage({"d0-n0": 8}), {})
    assert gauge("gkm_free_gpus", {"level": "all"}) == 24
    clock.now += SECONDS
    measured.update(2, survey, Usage(), {})
    assert gauge("gkm_free_gpus", {"level": "all"}) == 24


def test_without_usable_nodes_every_level_is_zero() -> None:
    clock = Clock()
    measured = FragmentationMetrics(GROUPS_OF_16, clock)
    measured.update(1, a_survey(*fleet()), Usage(), {})
    clock.now += SECONDS
    measured.update(2, a_survey(), Usage(), {})
    levels = ("all", "region", "cluster", "block", "domain")
    assert [gauge("gkm_free_gpus", {"level": level}) for level in levels] == [0] * 5
    assert [gauge("gkm_unusable_gpus", {"level": level}) for level in levels] == [0] * 5
    assert gauge("gkm_largest_group_gpus") == 0


@pytest.mark.parametrize("usage", [Usage({"d0-n0": 9}), Usage({}, {"d0-n0": "a pod that cannot be read"})])
def test_a_node_with_unknown_or_too_many_used_gpus_has_none_free(usage: Usage) -> None:
    free = {node.name: node.free for node in free_nodes(a_survey(*fleet()), usage, {})}
    assert free.pop("d0-n0", 0) == 0
    assert free == {"d0-n1": 8, "d1-n0": 8, "d1-n1": 8}


def test_nodes_of_two_flavors_hold_no_group_together() -> None:
    other = gpu_node("d0-other", "d0")
    other["metadata"]["labels"]["gpu.flavor"] = "b200"
    nodes = list(free_nodes(a_survey(gpu_node("d0-n0", "d0"), other), Usage(), {}))
    assert len({node.place for node in nodes}) == 2
