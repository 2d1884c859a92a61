"""The YAML loader: bounded values and levels, no aliases or merge keys, unique keys, the types of YAML 1.2."""

import pytest
from gkm.api import config, documents
from gkm.api.config import ConfigInvalid
from gkm.api.documents import MAX_DEPTH, MAX_VALUES, InvalidYAML


@pytest.mark.parametrize("opening", ["[", "- ", "? ", "{a: "])
def test_a_text_that_is_nested_deeply_is_refused_before_the_loader_crashes(opening: str) -> None:
    with pytest.raises(ConfigInvalid, match="levels"):
        config.parse(opening * 60_000)


def test_a_text_at_the_limits_of_values_and_levels_is_read() -> None:
    assert documents.decode("[" * MAX_DEPTH + "]" * MAX_DEPTH, object)
    assert documents.decode("\n".join(["- a"] * (MAX_VALUES - 1)), list[str])
    with pytest.raises(ValueError, match="values"):
        documents.decode("\n".join(["- a"] * MAX_VALUES), list[str])


def test_brackets_in_strings_are_no_levels() -> None:
    assert documents.decode("a: '" + "[" * 1000 + "'", dict[str, str]) == {"a": "[" * 1000}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: &a [x]\nb: *a", "aliases"),
        ("a: {<<: {b: c}}", "merge keys"),
        ("a: 1\nb: {c: 1, d: 2, c: 3}", "line 2.*'c' twice"),
        ("a: 1\n---\nb: 2", "2 documents"),
        ("!!bool maybe", "maybe"),
        ('!!int ""', "index"),
        ("!!timestamp x", "group"),
        ("? [a]\n: b", "unhashable"),
        ("[", "expected"),
        (b"\xff\xfe\x00", "."),
    ],
)
def test_a_text_that_is_ambiguous_or_invalid_is_refused_in_one_line(text: str | bytes, problem: str) -> None:
    with pytest.raises(InvalidYAML, match=problem) as caught:
        documents.decode(text, object)
    assert "\n" not in str(caught.value)


@pytest.mark.timeout(60)
def test_the_key_that_a_large_mapping_has_twice_is_found_in_linear_time() -> None:
    lines = [f"k{number}: 1" for number in range(40_000)]
    with pytest.raises(InvalidYAML, match="the key 'k39999' twice"):
        documents.decode("\n".join((*lines, lines[-1])), object, 1 << 17)


def test_a_caller_can_allow_aliases_which_share_one_value() -> None:
    assert documents.decode("a: &a [x]\nb: *a", object, aliases=True) == {"a": ["x"], "b": ["x"]}


def test_the_merge_key_as_quoted_text_is_text() -> None:
    assert documents.decode("'<<': '<<'", object) == {"<<": "<<"}


def test_on_off_yes_and_no_are_strings() -> None:
    text = "[on, off, yes, no, Yes, true, False]"
    assert documents.decode(text, object) == ["on", "off", "yes", "no", "Yes", True, False]


def test_a_date_is_a_string() -> None:
    text = "[2026-01-01, 2026-01-01T00:00:00Z, 2026-01-01 00:00:00.5 +01:00]"
    assert documents.decode(text, object) == ["2026-01-01", "2026-01-01T00:00:00Z", "2026-01-01 00:00:00.5 +01:00"]


def test_documents_come_in_order_and_their_values_count_together() -> None:
    assert list(documents.decode_all("a\n---\n---\nb")) == ["a", None, "b"]
    with pytest.raises(InvalidYAML, match="values"):
        list(documents.decode_all("---\n" * (MAX_VALUES + 1)))


def test_an_empty_text_is_null() -> None:
    assert documents.decode("", object) is None
