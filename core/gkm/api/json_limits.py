"""Limits on the number of values in a foreign JSON text, checked before a decoder allocates objects.

A decoder allocates 40 to 130 bytes for a value of two or three bytes of text: 4 MiB of `[{},{},…]` became 100 MiB. So a
limit on bytes does not limit the memory, and a limit on the length of a list comes too late, because msgspec applies it
to the finished list. A text may hold one value in every 16 bytes, plus 2,048. Manifests, signatures and credentials
have one value in 20 to 40 bytes.
"""

import re
from functools import partial

FREE_VALUES = 2_048
"""Values that a text of any length may hold: about 250 KiB of objects."""

# A string without an end matches up to the end of the text, so the search stays linear.
_STRING = rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
_QUOTE = ord('"')


class TooManyValues(ValueError):
    """The JSON text holds more values than the limit allows."""


def _check(text: bytes, *, what: str, separators: bytes, bytes_each: int) -> None:
    """Refuse a text that holds more separators than FREE_VALUES and one in every `bytes_each` bytes together.

    Raises:
        TooManyValues: the text holds more.
    """
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


# One of these characters precedes every value and every key, except the outermost value.
check = partial(_check, what="values", separators=b",:[{", bytes_each=16)
"""Refuse a text that holds more values, keys included, than its length allows; raise TooManyValues."""
check_predicate = partial(_check, what="values", separators=b",:[{", bytes_each=6)
"""The same for the predicate of an attestation, of which few fields are decoded.

Bills of materials have a value in 11 to 20 bytes.
"""
check_objects = partial(_check, what="objects", separators=b"{", bytes_each=32)
"""The same for objects: for a type that decodes only objects."""
check_items = partial(_check, what="items", separators=b",", bytes_each=10)
"""The same for items of lists and mappings: for a list of raw items.

Objects of Kubernetes, with all fields that API servers add, have an item in 20 bytes.
"""
