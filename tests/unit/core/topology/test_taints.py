"""Which taints keep a pod away."""

import pytest
from gkm.topology.taints import DEFAULT_TOLERATIONS, Taint, Toleration, untolerated

GPU = Taint("nvidia.com/gpu", "NoSchedule", "present")


def test_a_run_that_names_no_tolerations_may_use_gpu_nodes_and_no_others_that_are_tainted() -> None:
    team = Taint("team", "NoSchedule", "x")

    assert untolerated([GPU], DEFAULT_TOLERATIONS) is None
    assert untolerated([GPU, team], DEFAULT_TOLERATIONS) is team


@pytest.mark.parametrize(("effect", "away"), [("NoSchedule", True), ("NoExecute", True), ("PreferNoSchedule", False)])
def test_a_preference_keeps_nobody_away(effect: str, away: bool) -> None:  # noqa: FBT001 -- a column of the table
    assert (untolerated([Taint("team", effect)], ()) is not None) is away


@pytest.mark.parametrize(
    "toleration",
    [
        Toleration("nvidia.com/gpu", "Exists"),
        Toleration("nvidia.com/gpu", "Exists", effect="NoSchedule"),
        Toleration("nvidia.com/gpu", "Equal", "present"),
        Toleration("nvidia.com/gpu", "", "present"),
        Toleration(operator="Exists"),
    ],
)
def test_this_tolerates_the_taint_of_gpu_nodes(toleration: Toleration) -> None:
    assert toleration.tolerates(GPU)


@pytest.mark.parametrize(
    "toleration",
    [
        Toleration("nvidia.com/gpu", "Exists", effect="NoExecute"),
        Toleration("nvidia.com/gpu", "Equal", "absent"),
        Toleration("nvidia.com/gpu"),
        Toleration("other", "Exists"),
        Toleration("nvidia.com/gpu", "Gt", "present"),
        Toleration(),
    ],
)
def test_this_does_not(toleration: Toleration) -> None:
    assert not toleration.tolerates(GPU)
