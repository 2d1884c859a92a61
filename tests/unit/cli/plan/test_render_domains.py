import pytest
from gkm.packing.inventory import Inventory
from gkm.packing.values import Distance, Group, Location, Node, Share, Spare
from gkm_cli.plan.render import DomainGpus, cell_gpus, cells, common_levels, domain_rows
from hypothesis import given
from hypothesis import strategies as st

GPUS = st.integers(0, 100_000)
ONE, OTHER = Location("r", "c", "b", "d1"), Location("r", "c", "b", "d2")


@given(st.builds(DomainGpus, GPUS, GPUS, GPUS, GPUS), st.integers(1, 500))
def test_a_bar_is_as_long_as_its_domain_and_hides_nothing(parts: DomainGpus, each: int) -> None:
    drawn = cells(parts, each)
    shown = sum(part > 0 for part in parts)
    assert sum(drawn) == max(-(-parts.total // each), shown)
    assert all((part > 0) == (cell > 0) for part, cell in zip(parts, drawn, strict=True))


@given(st.builds(DomainGpus, GPUS, GPUS, GPUS, GPUS))
def test_a_sign_for_every_gpu_is_the_domain_itself(parts: DomainGpus) -> None:
    assert cells(parts, 1) == parts


def test_bars_have_one_scale_and_the_longest_fits() -> None:
    nodes = [Node("a", ONE, 72, 72), Node("b", OTHER, 1000, 0)]
    group = Group(0, 8, ONE, "", (Share("a", 8),), (Spare("a", 8, ONE, Distance.DOMAIN),))
    drawn = domain_rows([group, Group(1, 0, OTHER, "", ())], Inventory.from_nodes(nodes))
    assert cell_gpus(drawn, 48) == 21
    assert cell_gpus([], 48) == 1


def test_a_bar_has_parts_for_the_plan_for_others_and_for_free_gpus() -> None:
    nodes = [
        Node("a", ONE, 8, 8),
        Node("b", ONE, 8, 5),
        Node("c", OTHER, 8, 8),
        Node("d", Location("r", "c", "b", "d3"), 8, 8),
    ]
    group = Group(
        0, 8, ONE, "", (Share("a", 8),), (Spare("b", 4, ONE, Distance.DOMAIN), Spare("c", 4, OTHER, Distance.BLOCK))
    )
    found = {row.place: (row.groups, row.gpus) for row in domain_rows([group], Inventory.from_nodes(nodes))}
    assert found == {ONE: (1, DomainGpus(8, 4, 3, 1)), OTHER: (0, DomainGpus(0, 4, 0, 4))}


@pytest.mark.parametrize(
    ("places", "level"),
    [
        ([ONE], 2),
        ([ONE, OTHER], 2),
        ([ONE, Location("r", "c", "b2", "d")], 2),
        ([ONE, Location("r", "c2", "b", "d")], 1),
        ([ONE, Location("r2", "c", "b", "d")], 0),
    ],
)
def test_names_that_all_domains_share_are_left_out(places: list[Location], level: int) -> None:
    assert common_levels(places) == level
