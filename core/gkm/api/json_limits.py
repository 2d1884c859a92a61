"""How many values a foreign JSON text may hold. The check counts them before a decoder makes an object of any.

A decoder allocates 40 to 130 bytes for a value that takes two or three bytes of text: `[{},{},…]` of 4 MiB became
100 MiB. A limit on bytes therefore limits no memory, and a limit on the length of a list comes too late, because
msgspec applies it to the finished list. So a text may hold one value in every 16 bytes, beyond a first 2,048; what
people and programs write into manifests, signatures and credentials has one in 20 to 40.
"""

import re

FREE_VALUES = 2_048
"""A text may hold so many however short it is: some 250 KiB of objects."""
BYTES_A_VALUE = 16
BYTES_AN_OBJECT = 32
BYTES_AN_ITEM = 10

_VALUES, _OBJECTS, _ITEMS = b",:[{", b"{", b","
# A string that never ends matches up to the end of the text: the search stays linear.
_STRING = rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
_QUOTE = ord('"')


class TooManyValues(ValueError):
    """The text holds more values than its length allows."""


def check(text: bytes) -> None:
    """Refuse a text that holds more values, keys included, than its length allows.

    Raises:
        TooManyValues: it does.
    """
    # Every value and every key stands behind one of these, except the outermost value.
    _check(text, _VALUES, BYTES_A_VALUE, "values")


def check_objects(text: bytes) -> None:
    """Refuse a text that holds more objects than its length allows: for a type that makes nothing of the rest.

    Raises:
        TooManyValues: it does.
    """
    _check(text, _OBJECTS, BYTES_AN_OBJECT, "objects")


def check_items(text: bytes) -> None:
    """Refuse a text that holds more items of lists and mappings than its length allows: for a list of raw items.

    Objects of Kubernetes with all that API servers write into them have an item in 20 bytes.

    Raises:
        TooManyValues: it does.
    """
    _check(text, _ITEMS, BYTES_AN_ITEM, "items")


def _check(text: bytes, separators: bytes, bytes_each: int, what: str) -> None:
    allowed = FREE_VALUES + len(text) // bytes_each
    # To count them all, strings included, is fast.
    fewer = sum(text.count(one) for one in separators) <= allowed
    if not fewer and _outside_strings(text, separators, allowed) > allowed:
        raise TooManyValues(f"it holds more than the {allowed} {what} that a text of {len(text)} bytes may hold")


def _outside_strings(text: bytes, separators: bytes, enough: int) -> int:
    """Return how many separators stand outside of strings; the count ends when there are more than `enough`."""
    count = 0
    for found in re.finditer(_STRING + rb"|[%b]" % re.escape(separators), text, re.DOTALL):
        count += text[found.start()] != _QUOTE
        if count > enough:
            break
    return count
