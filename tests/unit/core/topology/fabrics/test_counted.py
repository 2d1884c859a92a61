"""Globs that decide which cables of a network count."""

import pytest
from gkm.topology.fabrics.counted import EVERY_CABLE, Counted


@pytest.mark.parametrize(
    ("globs", "name", "counts"),
    [
        ((), "mlx5_0", True),
        (("*",), "", True),
        (("mlx5_[0-3]",), "mlx5_3", True),
        (("mlx5_[0-3]",), "mlx5_4", False),
        (("mlx5_[0-3]",), "", False),
        (("!mlx5_9",), "mlx5_9", False),
        (("!mlx5_9",), "mlx5_8", True),
        (("!mlx5_9",), "", True),
        (("mlx5_*", "!mlx5_9"), "mlx5_9", False),
        (("mlx5_*", "!mlx5_9"), "ens1", False),
    ],
)
def test_a_name_counts_if_a_glob_includes_it_and_none_excludes_it(
    globs: tuple[str, ...],
    name: str,
    counts: bool,  # noqa: FBT001 -- a parameter
) -> None:
    assert Counted(adapters=globs).adapter(name) is counts
    assert Counted(switches=globs).switch(name) is counts
    assert EVERY_CABLE.adapter(name)


def test_a_switch_has_two_names() -> None:
    counted = Counted(switches=("!MF0;storage*",))
    assert not counted.switch("2c5e010000000001", "MF0;storage-1:MQM9701/U1")
    assert not Counted(switches=("!2c5e010000000001",)).switch("2c5e010000000001", "MF0;leaf-1:MQM9701/U1")
