"""A long list, as kubectl prints it, in parts of bounded size: each with some of its objects. Pure.

25,000 Nodes are half a gigabyte with all that kubelets and controllers write into them. A text that is laid out in
another way is handed on as it is, in one piece.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

# From the brace of the list to that of its first object; every line of its own keys is indented alike.
_HEAD = re.compile(rb'\{\n(?P<indent> {1,8})"(?:[^\n]*\n(?P=indent)")*?items": \[\n(?P=indent){2}(?=\{\n)')
BLOCK_BYTES = 1 << 18
"""A good size of the blocks: it stays in the processor's cache while it is cut and read."""


class ListPart(NamedTuple):
    """A part of a list: an array of some of its `objects`, or what is left without them, or all of it."""

    text: bytes
    objects: bool


def split_list(blocks: Iterable[bytes]) -> Iterator[ListPart]:
    """Yield the objects of the list in `blocks`, in their order, and last what stands around them.

    Cuts are made by indentation, which proves nothing; that every part can be read does: what is an array between
    brackets of ours is objects and commas, and what is left is a list that they fit in. A list with another one beside
    `items`, which the API has nowhere, comes in parts that cannot be read. No string of JSON has a line break in it, so
    a cut is never within one.
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
        # What was looked through has no place to cut, but one may have begun in it.
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
        # Nearly always: then all but the last object of the block is copied once, and no more.
        with memoryview(block) as view:
            yield ListPart(b"".join((b"[", rest, view[: cut + len(close)], b"]")), objects=True)
            rest, scanned = bytearray(view[cut + len(close) + 1 :]), 0
    last = rest.find(end)
    if last >= 0:
        yield _array(rest, last + len(close))
        del rest[: last + len(close)]
    yield ListPart(b"".join([head[0], rest]), objects=False)


def _is_json(text: bytes) -> bool:
    """Return whether this is JSON: then the list that its last brackets close is one of its own."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _array(text: bytearray, end: int) -> ListPart:
    with memoryview(text)[:end] as objects:
        return ListPart(b"".join((b"[", objects, b"]")), objects=True)
