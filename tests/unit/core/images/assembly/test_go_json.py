import json
import math

import pytest
from gkm.images.assembly.go_json import MAX_DEPTH, as_map, marshal, marshal_indent
from hypothesis import given
from hypothesis import strategies as st

# The expected texts follow Go's documentation of encoding/json and ECMAScript's number format, to which it refers.


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("<a> & b", r'"\u003ca\u003e \u0026 b"'),
        ("\u2028\u2029", r'"\u2028\u2029"'),
        ('ü\x00\n\t"\\', '"ü\\u0000\\n\\t\\"\\\\"'),
        (None, "null"),
        (True, "true"),
        (False, "false"),
        ([], "[]"),
        ({}, "{}"),
        ({"b": 1, "a": [1, "x"]}, '{"b":1,"a":[1,"x"]}'),
    ],
)
def test_the_compact_form_is_gos(value: object, text: str) -> None:
    assert marshal(value) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (5, "5"),
        (1.0, "1"),
        (0.5, "0.5"),
        (-0.25, "-0.25"),
        (1e-5, "0.00001"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (1.5e-10, "1.5e-10"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.25e22, "1.25e+22"),
        (2**53 + 1, "9007199254740992"),
    ],
)
def test_numbers_of_unknown_type_are_floats_as_go_writes_them(number: float, text: str) -> None:
    assert marshal(as_map(number)) == text


def test_the_indented_form_is_gos() -> None:
    value = {"vllm": [{"env": {}, "names": ["a", "b"], "n": 1}]}
    assert marshal_indent(value) == (
        "{\n"
        '  "vllm": [\n'
        "    {\n"
        '      "env": {},\n'
        '      "names": [\n'
        '        "a",\n'
        '        "b"\n'
        "      ],\n"
        '      "n": 1\n'
        "    }\n"
        "  ]\n"
        "}"
    )


def test_keys_of_maps_are_sorted_by_their_bytes_at_every_level() -> None:
    assert marshal(as_map({"b": {"z": 1, "Z": 2}, "a": [{"y": 1, "x": 2}], "ä": 0, "𐀀": 1})) == (
        '{"a":[{"x":2,"y":1}],"b":{"Z":2,"z":1},"ä":0,"𐀀":1}'
    )


def test_json_that_go_could_not_read_is_refused() -> None:
    with pytest.raises(ValueError, match="too large"):
        as_map(10**400)
    nested: object = 1
    for _ in range(MAX_DEPTH + 1):
        nested = [nested]
    with pytest.raises(ValueError, match="deeper"):
        as_map(nested)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    )
)
def test_whatever_is_written_is_read_as_the_same(value: object) -> None:
    mapped = as_map(value)
    assert json.loads(marshal(mapped), parse_int=float) == mapped
    assert json.loads(marshal_indent(mapped), parse_int=float) == mapped


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_is_read_back_exactly(number: float) -> None:
    assert math.isclose(float(marshal(number)), number, rel_tol=0, abs_tol=0)
