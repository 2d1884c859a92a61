"""Decode the nodes, pods, claims or NodeFabrics of a list from `kubectl get -o json` or the API, within bounds. Pure.

A node that cannot be decoded is quarantined, and the others are read. The same holds for a pod whose node is known.
25,000 Nodes take half a gigabyte of JSON, so a long list in the layout of kubectl is split into parts of bounded size,
each with some of the objects. A text in another layout is one part.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from gkm.api.fabrics import NodeFabric
from gkm.topology.claims import ResourceClaim
from gkm.topology.nodes import Node
from gkm.topology.pods import Pod
from gkm.topology.quarantine import Quarantined, QuarantineReason

MAX_BYTES = 2 << 30
"""Limit of bytes of a list. A node takes 5 to 30 kB; a few dozen nodes are in memory at a time."""
MAX_ITEMS = 2_000_000
MAX_WRONG = 10_000
"""Limit of undecodable objects: a list with more is probably of another kind."""
T = TypeVar("T", Node, Pod, NodeFabric, ResourceClaim)

_Word = Annotated[str, Meta(max_length=317)]


class ListUnreadable(ValueError):
    """The text is not a list of the expected kind; the message has the kind found and what is expected."""


@dataclass(frozen=True, slots=True)
class NodeList:
    """The nodes of a list from kubectl or the API, and the nodes that could not be decoded."""

    nodes: tuple[Node, ...]
    unread: tuple[Quarantined, ...] = ()


@dataclass(frozen=True, slots=True)
class PodList:
    """The pods of a list; `unread` has the node and a message for each pod that could not be decoded."""

    pods: tuple[Pod, ...]
    unread: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class FabricList:
    """The NodeFabrics of a list, and the number of NodeFabrics that could not be decoded."""

    fabrics: tuple[NodeFabric, ...]
    unread: int = 0


class _List(Struct):
    kind: str = ""
    items: list[Raw] | UnsetType | None = UNSET


class _Named(Struct):
    name: _Word = ""


class _PodSpecHead(Struct, rename="camel"):
    node_name: _Word = ""


class _Head(Struct):
    """The fields that identify an object which cannot be decoded."""

    metadata: _Named = field(default_factory=_Named)
    spec: _PodSpecHead = field(default_factory=_PodSpecHead)


class _UnreadableItem(NamedTuple):
    number: int
    head: _Head
    message: str


def parse_nodes(blocks: Iterable[bytes]) -> NodeList:
    """Decode the nodes of a list, or a single node; `blocks` are pieces of the text.

    Raises:
        ListUnreadable: the text is no such list, or has too many bytes or items.
    """
    read, wrong = _read(blocks, Node)
    quarantined = (
        Quarantined(
            _plain(entry.head.metadata.name) or f"items[{entry.number}]", QuarantineReason.UNREADABLE, entry.message
        )
        for entry in wrong
    )
    return NodeList(tuple(read), tuple(quarantined))


def parse_pods(blocks: Iterable[bytes]) -> PodList:
    """Decode the pods of a list, or a single pod; `blocks` are pieces of the text.

    Raises:
        ListUnreadable: the text is no such list, or is too long, or has a pod whose node cannot be decoded: the GPUs of
        that pod would appear free.
    """
    read, wrong = _read(blocks, Pod)
    unread: list[tuple[str, str]] = []
    for entry in wrong:
        node = entry.head.spec.node_name
        if not node:
            raise ListUnreadable(f"items[{entry.number}] is a pod that cannot be read: {entry.message}")
        unread.append((node, f"a pod on it cannot be read: {entry.message}"))
    return PodList(tuple(read), tuple(unread))


def parse_claims(blocks: Iterable[bytes]) -> tuple[ResourceClaim, ...]:
    """Decode the ResourceClaims of a list, or a single claim; `blocks` are pieces of the text.

    Raises:
        ListUnreadable: the text is no such list, or is too long, or a claim cannot be decoded: its GPUs would appear
        free.
    """
    read, wrong = _read(blocks, ResourceClaim)
    for entry in wrong:
        raise ListUnreadable(f"items[{entry.number}] is a ResourceClaim that cannot be read: {entry.message}")
    return tuple(read)


def parse_fabrics(blocks: Iterable[bytes]) -> FabricList:
    """Decode the NodeFabrics of a list, or a single NodeFabric; `blocks` are pieces of the text.

    Raises:
        ListUnreadable: the text is no such list, or has too many bytes or items.
    """
    read, wrong = _read(blocks, NodeFabric)
    return FabricList(tuple(read), len(wrong))


def _read(blocks: Iterable[bytes], kind: type[T]) -> tuple[list[T], list[_UnreadableItem]]:
    """Return the objects of a list, and those that cannot be decoded."""
    plural = f"{kind.__name__.lower()}s"
    hint = f"give what `kubectl get {plural} -o json` prints"
    read: list[T] = []
    wrong: list[_UnreadableItem] = []
    try:
        for text, objects in split_list(_bounded(blocks)):
            if objects:
                if not _add_all(text, kind, read, wrong):
                    _add_each(msgspec.json.decode(text, type=list[Raw]), kind, read, wrong)
                continue
            listed = msgspec.json.decode(text, type=_List)
            is_single = listed.kind == kind.__name__
            if not is_single and (listed.items is UNSET or listed.kind not in ("", "List", f"{kind.__name__}List")):
                raise ListUnreadable(f"this is {_plain(listed.kind) or 'something else'}, no list of {plural}; {hint}")
            _add_each([text] if is_single else listed.items or [], kind, read, wrong)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ListUnreadable(f"no list of {plural} can be read: {_plain(error)}; {hint}") from error
    return read, wrong


def _bounded(blocks: Iterable[bytes]) -> Iterator[bytes]:
    total = 0
    for block in blocks:
        total += len(block)
        if total > MAX_BYTES:
            raise ListUnreadable(f"the list has more than the {MAX_BYTES} bytes that are read")
        yield block


def _add_all(text: bytes, kind: type[T], read: list[T], wrong: Sequence[_UnreadableItem]) -> bool:
    """Decode an array in one call, in half the time; return False without adding any object if one fails."""
    try:
        found: list[T] = msgspec.json.decode(text, type=list[kind])  # type: ignore[valid-type]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False  # decoding one by one finds the wrong object
    if len(read) + len(wrong) + len(found) > MAX_ITEMS or any(_is_other(kind, entry) for entry in found):
        return False
    read += found
    return True


def _add_each(raws: Sequence[Raw | bytes], kind: type[T], read: list[T], wrong: list[_UnreadableItem]) -> None:
    """Add each object to `read`, or to `wrong` if it cannot be decoded.

    Raises:
        ListUnreadable: an object is of another kind, or there are too many.
    """
    before = len(read) + len(wrong)
    if before + len(raws) > MAX_ITEMS:
        raise ListUnreadable(f"the list has more than the {MAX_ITEMS} items that are read")
    for number, raw in enumerate(raws, before):
        try:
            found = msgspec.json.decode(raw, type=kind)
        except msgspec.ValidationError as error:
            wrong.append(_UnreadableItem(number, _head(raw), _plain(error)))
            if len(wrong) > MAX_WRONG:
                raise ListUnreadable(f"more than {MAX_WRONG} of its items cannot be read: {_plain(error)}") from error
            continue
        if not isinstance(found, NodeFabric) and found.kind != kind.__name__:
            raise ListUnreadable(f"items[{number}] is a {_plain(found.kind)}, no {kind.__name__}")
        read.append(found)


def _is_other(kind: type[T], found: T) -> bool:
    """Return whether an object is of another kind; the decoder has checked the kind of a NodeFabric."""
    return not isinstance(found, NodeFabric) and found.kind != kind.__name__


def _head(raw: Raw | bytes) -> _Head:
    try:
        return msgspec.json.decode(raw, type=_Head)
    except msgspec.ValidationError:
        return _Head()


def _plain(value: object) -> str:
    """Return foreign text escaped and cut, to be part of one line; an escaped character takes up to ten."""
    return ascii(str(value)[:160])[1:-1][:160]


# From the brace of the list to the brace of its first object; the list's keys have one indentation.
_HEAD = re.compile(rb'\{\n(?P<indent> {1,8})"(?:[^\n]*\n(?P=indent)")*?items": \[\n(?P=indent){2}(?=\{\n)')
BLOCK_BYTES = 1 << 18
"""The recommended size of blocks: one stays in the cache of the processor while it is split and decoded."""


class ListPart(NamedTuple):
    """A part of a list's text: with `objects`, an array of some items; otherwise the rest of the list."""

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
