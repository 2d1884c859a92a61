"""The parser of plain Python literals, compared with Python's own."""

import ast
import pprint

import pytest
from gkm.mounts.relocation import literal
from gkm.mounts.relocation.literal import MAX_NESTING, NotALiteral, parse
from hypothesis import example, given
from hypothesis import strategies as st

ATOMS = st.none() | st.booleans() | st.integers(0, 10**18 - 1) | st.text("ab '\"\\/ü(,{:", max_size=120)
PLAIN = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(ATOMS | st.tuples(ATOMS, ATOMS), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(PLAIN)
def test_the_output_of_pprint_is_parsed(value: object) -> None:
    assert parse(pprint.PrettyPrinter(indent=4).pformat(value)) == value
    assert parse(repr(value)) == value


@example(["'", "'", "'a'"])
@given(st.lists(st.sampled_from([*"()[]{},:01\n ", "'a'", '"b"', "None", "True", "\\", "'", "-"]), max_size=12))
def test_the_parser_agrees_with_python(tokens: list[str]) -> None:
    text = "".join(tokens)
    try:
        value = parse(text)
    except NotALiteral:
        return
    assert value == ast.literal_eval(f"({text.strip()}\n)")


@pytest.mark.parametrize("text", ["()", "(1,)", "(1)", "((1))", "[1, ]", "{}", "{1: 2, }", "('a' \"b\"\n 'c')", " 1 "])
def test_commas_and_parentheses_are_parsed_as_in_python(text: str) -> None:
    assert parse(text) == ast.literal_eval(text.strip())


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1 2",
        "1,",
        "(,)",
        "(1 2)",
        "(1]",
        "{1}",
        "{1, 2}",
        "{1: }",
        "{[]: 1}",
        "{{}: 1}",
        "{([],): 1}",
        ":",
        ")",
        "-1",
        "1.0",
        "1e9",
        "1_0",
        "01",
        "0x1",
        "1" * 19,
        "b''",
        "'",
        "'a\n'",
        "'\\n'",
        "f'{1}'",
        "[1 for x in y]",
        "name",
        "NoneNone",
        "()()",
        "1 # comment",
        "(" * (MAX_NESTING + 1) + ")" * (MAX_NESTING + 1),
        "(" * 100_000,
        "\0",
        "\ufeff{}",
    ],
    ids=lambda text: ascii(text[:24]),
)
def test_other_syntax_is_refused(text: str) -> None:
    with pytest.raises(NotALiteral):
        parse(text)


def test_more_tokens_than_any_index_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(literal, "MAX_TOKENS", 5)
    assert parse("(1, 2)") == (1, 2)
    with pytest.raises(NotALiteral):
        parse("(1, 2,)")
