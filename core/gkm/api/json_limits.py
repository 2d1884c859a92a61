"""Limits on the number of values in a foreign JSON text, checked before a decoder allocates objects.

A decoder allocates 40 to 130 bytes for a value of two or three bytes of text: 4 MiB of `[{},{},…]` became 100 MiB. So a
limit on bytes does not limit the memory, and a limit on the length of a list comes too late, because msgspec applies it
to the finished list. A text may hold one value in every 16 bytes, plus 2,048. Manifests, signatures and credentials
have one value in 20 to 40 bytes.
"""

import re

FREE_VALUES = 2_048
"""Values that a text of any length may hold: about 250 KiB of objects."""
BYTES_A_VALUE = 16
BYTES_AN_OBJECT = 32
BYTES_AN_ITEM = 10

_VALUES, _OBJECTS, _ITEMS = b",:[{", b"{", b","
# A string without an end matches up to the end of the text, so the search stays linear.
_STRING = rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
_QUOTE = ord('"')


class TooManyValues(ValueError):
    """The text holds more values than its length allows."""


def check(text: bytes) -> None:
    """Refuse a text that holds more values, keys included, than its length allows.

    Raises:
        TooManyValues: the text holds more.
    """
    # One of these characters precedes every value and every key, except the outermost value.
    _check(text, _VALUES, BYTES_A_VALUE, "values")


def check_objects(text: bytes) -> None:
    """Refuse a text that holds more objects than its length allows, for a type that decodes only objects.

    Raises:
        TooManyValues: the text holds more.
    """
    _check(text, _OBJECTS, BYTES_AN_OBJECT, "objects")


def check_items(text: bytes) -> None:
    """Refuse a text that holds more items of lists and mappings than its length allows, for a list of raw items.

    Objects of Kubernetes, with all fields that API servers add, have an item in 20 bytes.

    Raises:
        TooManyValues: the text holds more.
    """
    _check(text, _ITEMS, BYTES_AN_ITEM, "items")


def _check(text: bytes, separators: bytes, bytes_each: int, what: str) -> None:
    allowed = FREE_VALUES + len(text) // bytes_each
    # The fast case: count all separators, those inside strings included.
    fewer = sum(text.count(one) for one in separators) <= allowed
    if not fewer and _outside_strings(text, separators, allowed) > allowed:
        raise TooManyValues(f"it holds more than the {allowed} {what} that a text of {len(text)} bytes may hold")


def _outside_strings(text: bytes, separators: bytes, enough: int) -> int:
    """Return the number of separators outside of strings; stop the count when it exceeds `enough`."""
    count = 0
    for found in re.finditer(_STRING + rb"|[%b]" % re.escape(separators), text, re.DOTALL):
        count += text[found.start()] != _QUOTE
        if count > enough:
            break
    return count
