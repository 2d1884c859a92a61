"""Split a long list in the layout of kubectl into parts of bounded size, each with some of the objects. Pure.

25,000 Nodes take half a gigabyte of JSON. A text in another layout is returned unchanged, in one part.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

# From the brace of the list to that of its first object; its own keys have one indentation.
_HEAD = re.compile(rb'\{\n(?P<indent> {1,8})"(?:[^\n]*\n(?P=indent)")*?items": \[\n(?P=indent){2}(?=\{\n)')
BLOCK_BYTES = 1 << 18
"""The recommended size of blocks: one stays in the cache of the processor while it is split and decoded."""


class ListPart(NamedTuple):
    """A part of a list: an array of some of its `objects`, or the rest of the list without them, or the whole list."""

    text: bytes
    objects: bool


def split_list(blocks: Iterable[bytes]) -> Iterator[ListPart]:
    """Yield the objects of the list in `blocks` in their order, then the rest of the list.

    Indentation decides where to split, and decoding proves it right: a part that decodes as an array between added
    brackets consists of objects and commas, and the rest decodes as a list into which they fit. A list with another
    list beside `items`, which the API has nowhere, gives parts that do not decode. A JSON string contains no line
    break, so no split is within one.
    """
    texts = iter(blocks)
    first = next(texts, b"")
    head = _HEAD.match(first)
    if head is None or not _is_json(head[0] + b"]}"):
        yield ListPart(b"".join([first, *texts]), objects=False)
        return
    close = b"\n" + 2 * head["indent"] + b"}"
    between, end = close + b",\n" + 2 * head["indent"] + b"{\n", close + b"\n" + head["indent"] + b"]"
    rest, scanned = bytearray(first[head.end() :]), 0
    while True:
        # The scanned bytes contain no separator, but one may begin in them.
        cut = rest.rfind(between, max(0, scanned - len(between)))
        if cut >= 0:
            yield _array(rest, cut + len(close))
            del rest[: cut + len(close) + 1]
        scanned = len(rest)
        block = next(texts, None)
        if block is None:
            break
        cut = block.rfind(between)
        if cut < 0:
            rest += block
            continue
        # The usual case: all but the last object of the block are copied only once.
        with memoryview(block) as view:
            yield ListPart(b"".join((b"[", rest, view[: cut + len(close)], b"]")), objects=True)
            rest, scanned = bytearray(view[cut + len(close) + 1 :]), 0
    last = rest.find(end)
    if last >= 0:
        yield _array(rest, last + len(close))
        del rest[: last + len(close)]
    yield ListPart(b"".join([head[0], rest]), objects=False)


def _is_json(text: bytes) -> bool:
    """Return whether a text is JSON: then its last brackets close the list that it opens."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _array(text: bytearray, end: int) -> ListPart:
    with memoryview(text)[:end] as objects:
        return ListPart(b"".join((b"[", objects, b"]")), objects=True)
