"""Decode JSON that programs and servers print about a network, within limits. Pure."""

from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec.json import Decoder

from gkm.api import json_limits

T = TypeVar("T")


class OutputUnreadable(ValueError):
    """The output cannot be decoded or exceeds a limit; the message has the position, and no content."""


def decode(
    text: bytes, decoder: Decoder[T], max_bytes: int, check: Callable[[bytes], None] = json_limits.check_objects
) -> T:
    """Decode a program's output with `decoder`; `check` limits the number of values in it.

    Raises:
        OutputUnreadable: it is not JSON of that shape, or has too many bytes or values.
    """
    if len(text) > max_bytes:
        raise OutputUnreadable(f"the output has {len(text)} bytes, the limit is {max_bytes}")
    try:
        check(text)
        return decoder.decode(text)
    except (msgspec.DecodeError, json_limits.TooManyValues, UnicodeDecodeError, RecursionError) as error:
        raise OutputUnreadable(str(error)) from error
