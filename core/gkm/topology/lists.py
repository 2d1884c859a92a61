"""Nodes and pods out of what `kubectl get -o json` prints, or the API answers: bounded, and one by one.

A node that cannot be read is named and stops no other. So is a pod, as long as it says which node it is on.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from gkm.topology.list_parts import split_list
from gkm.topology.nodes import Node
from gkm.topology.pods import Pod
from gkm.topology.quarantine import Quarantined, QuarantineReason

MAX_BYTES = 2 << 30
"""A node takes 5 to 30 kB of what kubectl prints; a few dozen are in memory at a time (gkm.topology.list_parts)."""
MAX_ITEMS = 2_000_000
MAX_WRONG = 10_000
"""Objects that cannot be read, each with a message: more of them are another kind of list."""
T = TypeVar("T", Node, Pod)

_Word = Annotated[str, Meta(max_length=317)]


class ListUnreadable(ValueError):
    """It is no list of what it should be; the message says what it is, and what to give."""


@dataclass(frozen=True, slots=True)
class NodeList:
    """The nodes of a list."""

    nodes: tuple[Node, ...]
    unread: tuple[Quarantined, ...] = ()


@dataclass(frozen=True, slots=True)
class PodList:
    """The pods of a list; `unread` are nodes with a pod that cannot be read, and why."""

    pods: tuple[Pod, ...]
    unread: tuple[tuple[str, str], ...] = ()


class _List(Struct):
    kind: str = ""
    items: list[Raw] | UnsetType | None = UNSET


class _Named(Struct):
    name: _Word = ""


class _PodSpecHead(Struct, rename="camel"):
    node_name: _Word = ""


class _Head(Struct):
    """As much of an object as names it, where the rest of it is not as it should be."""

    metadata: _Named = field(default_factory=_Named)
    spec: _PodSpecHead = field(default_factory=_PodSpecHead)


class _UnreadableItem(NamedTuple):
    number: int
    head: _Head
    message: str


def parse_nodes(blocks: Iterable[bytes]) -> NodeList:
    """Return the nodes of a list of them, or of one node alone; `blocks` are its text, in pieces of any size.

    Raises:
        ListUnreadable: it is no such list, or it has too many bytes or items.
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
    """Return the pods of a list of them, or one pod alone; `blocks` are its text, in pieces of any size.

    Raises:
        ListUnreadable: it is no such list, it is too long, or it has a pod of which not even the node can be read:
            what that one takes would be taken for free.
    """
    read, wrong = _read(blocks, Pod)
    unread: list[tuple[str, str]] = []
    for entry in wrong:
        node = entry.head.spec.node_name
        if not node:
            raise ListUnreadable(f"items[{entry.number}] is a pod that cannot be read: {entry.message}")
        unread.append((node, f"a pod on it cannot be read: {entry.message}"))
    return PodList(tuple(read), tuple(unread))


def _read(blocks: Iterable[bytes], kind: type[T]) -> tuple[list[T], list[_UnreadableItem]]:
    """Return the objects of a list, and those that cannot be read."""
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
    """Add the objects of an array if all can be read, in half the time that one by one takes; return whether."""
    try:
        found: list[T] = msgspec.json.decode(text, type=list[kind])  # type: ignore[valid-type]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False  # which one it is, and what is wrong with it, is found out one by one
    if len(read) + len(wrong) + len(found) > MAX_ITEMS or any(entry.kind != kind.__name__ for entry in found):
        return False
    read += found
    return True


def _add_each(raws: Sequence[Raw | bytes], kind: type[T], read: list[T], wrong: list[_UnreadableItem]) -> None:
    """Add objects to those that were read, or to those that cannot be.

    Raises:
        ListUnreadable: one is of another kind (this is not the list that somebody meant), or there are too many.
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
        if found.kind != kind.__name__:
            raise ListUnreadable(f"items[{number}] is a {_plain(found.kind)}, no {kind.__name__}")
        read.append(found)


def _head(raw: Raw | bytes) -> _Head:
    try:
        return msgspec.json.decode(raw, type=_Head)
    except msgspec.ValidationError:
        return _Head()


def _plain(value: object) -> str:
    """Return a text of others so that it can stand in a line; escaped, a character may be ten."""
    return ascii(str(value)[:160])[1:-1][:160]
