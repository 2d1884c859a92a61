"""JSON merge patch, RFC 7386."""

import json
from copy import deepcopy

import pytest
from gkm.templates.merge import merge_patch
from gkm.templates.values import Json
from hypothesis import given
from hypothesis import strategies as st
from support.templates.json_values import OBJECTS, SCALARS, VALUES, shared

RFC_7386_APPENDIX_A = [
    ('{"a":"b"}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"b"}', '{"b":"c"}', '{"a":"b","b":"c"}'),
    ('{"a":"b"}', '{"a":null}', "{}"),
    ('{"a":"b","b":"c"}', '{"a":null}', '{"b":"c"}'),
    ('{"a":["b"]}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"c"}', '{"a":["b"]}', '{"a":["b"]}'),
    ('{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', '{"a":{"b":"d"}}'),
    ('{"a":[{"b":"c"}]}', '{"a":[1]}', '{"a":[1]}'),
    ('["a","b"]', '["c","d"]', '["c","d"]'),
    ('{"a":"b"}', '["c"]', '["c"]'),
    ('{"a":"foo"}', "null", "null"),
    ('{"a":"foo"}', '"bar"', '"bar"'),
    ('{"e":null}', '{"a":1}', '{"e":null,"a":1}'),
    ("[1,2]", '{"a":"b","c":null}', '{"a":"b"}'),
    ("{}", '{"a":{"bb":{"ccc":null}}}', '{"a":{"bb":{}}}'),
]
RFC_7386_SECTION_3 = (
    '{"title":"Goodbye!","author":{"givenName":"John","familyName":"Doe"},"tags":["example","sample"],"content":"This"}',
    '{"title":"Hello!","phoneNumber":"+01-123-456-7890","author":{"familyName":null},"tags":["example"]}',
    '{"title":"Hello!","author":{"givenName":"John"},"tags":["example"],"content":"This","phoneNumber":"+01-123-456-7890"}',
)
OF_ONE_SHAPE = st.recursive(
    st.fixed_dictionaries({}, optional={name: SCALARS.filter(lambda value: value is not None) for name in "abc"}),
    lambda inner: st.fixed_dictionaries({}, optional={"a": st.integers(), "m": inner, "n": inner}),
    max_leaves=6,
)
"""Objects without null in which a key holds either objects or scalars, never both: there RFC 7386 is associative."""


@pytest.mark.parametrize(("original", "patch", "result"), [*RFC_7386_APPENDIX_A, RFC_7386_SECTION_3])
def test_the_examples_of_the_rfc(original: str, patch: str, result: str) -> None:
    merged = merge_patch(json.loads(original), json.loads(patch))
    assert merged == json.loads(result)
    assert type(merged) is type(json.loads(result))


@given(VALUES, VALUES)
def test_inputs_do_not_change_and_the_result_shares_nothing_with_them(target: object, patch: object) -> None:
    before = deepcopy((target, patch))
    merged = merge_patch(target, patch)
    assert (target, patch) == before
    assert not shared(merged, target)
    assert not shared(merged, patch)


@given(VALUES, VALUES)
def test_a_patch_twice_is_the_patch_once(target: object, patch: object) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


@given(OF_ONE_SHAPE, OF_ONE_SHAPE, OF_ONE_SHAPE)
def test_merging_is_associative_where_the_rfc_is(first: Json, second: Json, third: Json) -> None:
    left = merge_patch(merge_patch(first, second), third)
    assert left == merge_patch(first, merge_patch(second, third))


def test_merging_is_not_associative_with_null() -> None:
    first, second, third = {"a": {"x": 1}}, {"a": None}, {"a": {"y": 2}}
    assert merge_patch(merge_patch(first, second), third) == {"a": {"y": 2}}
    assert merge_patch(first, merge_patch(second, third)) == {"a": {"x": 1, "y": 2}}


@given(OBJECTS, OBJECTS)
def test_keys_stay_in_the_order_of_the_target_and_new_ones_follow(target: Json, patch: Json) -> None:
    merged = list(merge_patch(target, patch))
    assert merged == [key for key in target if key in merged] + [key for key in merged if key not in target]
