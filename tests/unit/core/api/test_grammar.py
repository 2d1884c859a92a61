import pytest
from gkm.api.grammar import agree, count_of


@pytest.mark.parametrize(("count", "text"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes")])
def test_a_noun_agrees_with_its_number(count: int, text: str) -> None:
    assert count_of(count, "node") == text


def test_a_plural_of_its_own_is_used() -> None:
    assert [count_of(count, "entry", "entries") for count in (1, 2)] == ["1 entry", "2 entries"]


def test_a_verb_agrees_with_its_number() -> None:
    assert [agree(count, "is", "are") for count in (0, 1, 2)] == ["are", "is", "are"]
