"""Which switches are rails of one group, and that irregular networks cost bounded time."""

import random

import pytest
from gkm.topology.fabrics import rails
from hypothesis import given
from hypothesis import strategies as st

SETS = st.dictionaries(st.sampled_from("ABCDEFGH"), st.frozensets(st.sampled_from("123456"), max_size=6))


def joined(**connected: str) -> list[str]:
    return ["".join(group) for group in rails.joined({name: frozenset(things) for name, things in connected.items()})]


def test_more_than_half_in_common_is_one_group_and_exactly_half_is_not() -> None:
    assert joined(A="123", B="12") == ["AB"]
    assert joined(A="12", B="1") == ["A", "B"]
    assert joined(A="1234", B="34") == ["A", "B"]
    assert joined(A="123", B="234") == ["A", "B"]


def test_one_shared_host_joins_nothing() -> None:
    assert joined(A="123", B="123", C="1456", D="456") == ["AB", "CD"]


def test_rails_may_join_over_a_third_one() -> None:
    assert joined(A="1234", B="2345", C="3456", D="45678") == ["ABC", "D"]


def test_switches_that_connect_nothing_have_nothing_in_common() -> None:
    assert joined(A="", B="", C="1") == ["A", "B", "C"]


@given(SETS)
def test_groups_are_the_connected_parts_of_a_plain_comparison(connected: dict[str, frozenset[str]]) -> None:
    group_of = {switch: group for group in rails.joined(connected) for switch in group}
    assert set(group_of) == set(connected)
    reached = {switch: {switch} for switch in connected}
    for _ in connected:
        for one, things in connected.items():
            for other, others in connected.items():
                if 2 * len(things & others) > len(things | others):
                    reached[one] |= reached[other]
    assert {switch: frozenset(group) for switch, group in group_of.items()} == {
        switch: frozenset(found) for switch, found in reached.items()
    }


@given(SETS, st.randoms())
def test_the_order_of_switches_does_not_matter(connected: dict[str, frozenset[str]], order: random.Random) -> None:
    names = list(connected)
    order.shuffle(names)
    assert rails.joined({name: connected[name] for name in names}) == rails.joined(connected)


@pytest.fixture
def eighth_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rails, "MAX_WORK", rails.MAX_WORK // 8)


@pytest.mark.usefixtures("eighth_of_the_work")
def test_a_network_without_any_order_is_refused_before_all_pairs_are_compared() -> None:
    order = random.Random(1)
    connected = {f"s{number}": frozenset(order.sample(range(400), 40)) for number in range(1_400)}
    texts = {switch: frozenset(map(str, things)) for switch, things in connected.items()}
    with pytest.raises(rails.TooIrregular, match="in no regular order"):
        rails.joined(texts)


@pytest.mark.usefixtures("eighth_of_the_work")
def test_thousands_of_switches_with_one_thing_in_common_are_refused_and_not_compared_one_by_one() -> None:
    with pytest.raises(rails.TooIrregular):
        rails.joined({f"s{number}": frozenset({"host", f"own{number}", f"x{number}"}) for number in range(3_200)})
