"""YAML of people: as many values and levels as they write, and no more."""

import pytest
from gkm.api import config, documents
from gkm.api.config import ConfigInvalid
from gkm.api.documents import MAX_DEPTH, MAX_VALUES


@pytest.mark.parametrize("opening", ["[", "- ", "? ", "{a: "])
def test_a_text_that_is_nested_deeply_is_refused_before_the_loader_crashes(opening: str) -> None:
    with pytest.raises(ConfigInvalid, match="levels"):
        config.parse(opening * 60_000)


def test_as_many_values_and_levels_as_may_be_are_read() -> None:
    assert documents.decode("[" * MAX_DEPTH + "]" * MAX_DEPTH, object)
    assert documents.decode("\n".join(["- a"] * (MAX_VALUES - 1)), list[str])
    with pytest.raises(ValueError, match="values"):
        documents.decode("\n".join(["- a"] * MAX_VALUES), list[str])


def test_brackets_in_texts_are_no_levels() -> None:
    assert documents.decode("a: '" + "[" * 1000 + "'", dict[str, str]) == {"a": "[" * 1000}
