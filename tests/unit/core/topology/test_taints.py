"""The taints that repel a pod."""

import pytest
from gkm.api.runs import Toleration
from gkm.topology.nodes import DEFAULT_TOLERATIONS, Taint, tolerates, untolerated

GPU = Taint("nvidia.com/gpu", "NoSchedule", "present")


def test_the_default_tolerations_allow_gpu_nodes_only() -> None:
    team = Taint("team", "NoSchedule", "x")

    assert untolerated([GPU], DEFAULT_TOLERATIONS) is None
    assert untolerated([GPU, team], DEFAULT_TOLERATIONS) is team


@pytest.mark.parametrize(("effect", "away"), [("NoSchedule", True), ("NoExecute", True), ("PreferNoSchedule", False)])
def test_a_preference_excludes_no_node(effect: str, away: bool) -> None:  # noqa: FBT001 -- a column of the table
    assert (untolerated([Taint("team", effect)], ()) is not None) is away


@pytest.mark.parametrize(
    "toleration",
    [
        Toleration("nvidia.com/gpu", "Exists"),
        Toleration("nvidia.com/gpu", "Exists", effect="NoSchedule"),
        Toleration("nvidia.com/gpu", "Equal", "present"),
        Toleration(operator="Exists"),
    ],
)
def test_these_tolerations_match_the_taint_of_gpu_nodes(toleration: Toleration) -> None:
    assert tolerates(toleration, GPU)


@pytest.mark.parametrize(
    "toleration",
    [
        Toleration("nvidia.com/gpu", "Exists", effect="NoExecute"),
        Toleration("nvidia.com/gpu", "Equal", "absent"),
        Toleration("nvidia.com/gpu"),
        Toleration("other", "Exists"),
        Toleration(),
    ],
)
def test_these_tolerations_do_not_match_the_taint_of_gpu_nodes(toleration: Toleration) -> None:
    assert not tolerates(toleration, GPU)
