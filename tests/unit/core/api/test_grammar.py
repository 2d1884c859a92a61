import pytest
from gkm.api.grammar import agree, count_of, listed


@pytest.mark.parametrize(("count", "text"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes")])
def test_a_noun_agrees_with_its_number(count: int, text: str) -> None:
    assert count_of(count, "node") == text


def test_a_plural_of_its_own_is_used() -> None:
    assert [count_of(count, "entry", "entries") for count in (1, 2)] == ["1 entry", "2 entries"]


def test_a_verb_agrees_with_its_number() -> None:
    assert [agree(count, "is", "are") for count in (0, 1, 2)] == ["are", "is", "are"]


@pytest.mark.parametrize(
    ("texts", "text"), [((), ""), (("a",), "a"), (("a", "b"), "a, b"), (("a", "b", "c", "d"), "a, b and 2 more")]
)
def test_a_list_shows_the_first_texts_and_the_number_of_the_others(texts: tuple[str, ...], text: str) -> None:
    assert listed(texts, 2) == text
