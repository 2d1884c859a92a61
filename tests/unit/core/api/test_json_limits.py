"""Limits on the number of values in a foreign JSON text."""

import json

import pytest
from gkm.api import json_limits
from gkm.api.json_limits import FREE_VALUES, TooManyValues
from hypothesis import given
from hypothesis import strategies as st

HIDDEN = (b"\\\\", b'\\"', b"\\\\\\\\", b"\\u0022", b" ", b"x")
"""What may stand in a string to hide where it ends."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(',:[{"\\ x'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(',:[{"\\ x'), inner),
)


def separators_in(value: object) -> int:
    """Return the number of braces, brackets, colons and commas in the text of a value."""
    if isinstance(value, dict):
        return 1 + len(value) + max(0, len(value) - 1) + sum(map(separators_in, value.values()))
    if isinstance(value, list):
        return 1 + max(0, len(value) - 1) + sum(map(separators_in, value))
    return 0


def refuses(text: bytes) -> bool:
    try:
        json_limits.check(text)
    except TooManyValues:
        return True
    return False


@pytest.mark.parametrize("value", [b"{}", b"[]", b"0", b'""', b'{"a":0}', b"[[]]", b"null"])
@pytest.mark.parametrize("hidden", HIDDEN)
def test_many_small_values_are_refused_beside_any_other_content(value: bytes, hidden: bytes) -> None:
    count = 4 * FREE_VALUES
    assert refuses(b"[" + b",".join([value] * count) + b"]")
    assert refuses(b'["' + hidden + b'",' + b",".join([b'"' + hidden[:6] + b'"'] * count) + b"]")


@pytest.mark.parametrize("hidden", HIDDEN)
def test_separators_in_strings_are_not_counted(hidden: bytes) -> None:
    text = b'["' + (hidden + b",:[{") * 100_000 + b'"]'
    json.loads(text)
    assert not refuses(text)


def test_a_descriptor_after_another_is_not_refused() -> None:
    one = {"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": "sha256:" + "1" * 64, "size": 12345}
    assert not refuses(json.dumps({"layers": [one] * 20_000}, separators=(",", ":")).encode())


@given(JSON)
def test_separators_are_counted_outside_of_strings_only(value: object) -> None:
    assert json_limits._outside_strings(json.dumps(value).encode(), b",:[{", 1 << 30) == separators_in(value)
    utf8 = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    assert json_limits._outside_strings(utf8, b",:[{", 1 << 30) == separators_in(value)


@given(st.lists(st.sampled_from([b'"', b"\\", b",", b"[", b"x", b"\n"])).map(b"".join))
def test_the_count_covers_any_bytes_to_their_end(piece: bytes) -> None:
    text = piece * 3 * FREE_VALUES
    assert refuses(text) <= (sum(map(text.count, (b",", b":", b"[", b"{"))) > FREE_VALUES)
