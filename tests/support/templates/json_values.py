"""JSON values for properties, and which lists and objects two of them share."""

from typing import Any

from hypothesis import strategies as st

SCALARS = st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.text("ab}% é", max_size=4)
KEYS = st.sampled_from(["a", "b", "c", "name"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)


def containers(value: object) -> list[Any]:
    """Return all lists and objects in a value, itself included."""
    if not isinstance(value, dict | list):
        return []
    inner = value.values() if isinstance(value, dict) else value
    return [value, *(each for child in inner for each in containers(child))]


def shared(first: object, second: object) -> bool:
    """Return whether a list or an object is part of both values."""
    return bool({id(each) for each in containers(first)} & {id(each) for each in containers(second)})
