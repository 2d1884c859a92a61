"""Pack a provider's HyperNodes into a text, and check and apply its events.

Pure: no I/O, no clock, no provider's code.

The text is JSON, compressed by zlib, in base64. In an object it may be forged: so unpacking is limited in bytes and in
values before a decoder allocates objects, and no error has content of the text.

After each event the set of HyperNodes is a forest: each member has one parent, members that are HyperNodes exist, no
HyperNode contains itself. An event is applied as a whole or not at all. The cost of an event grows with its changes and
the HyperNodes below them, not with the set.
"""

import binascii
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec import Struct

from gkm.api.provider_trees import MAX_PACKED
from gkm.hoststate.escaping import escape
from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.providers import Action, Event, Reply
from gkm.topology.quarantine import Quarantined

MAX_BYTES = 32 << 20
"""Limit of bytes of the JSON; 12,500 nodes with names of 20 characters have 0.7 MiB."""
MAX_VALUES = 1_500_000
"""Limit of values in the JSON; 50,000 HyperNodes with 200,000 members have at most 1,250,000."""


class InvalidTree(ValueError):
    """The text in a ProviderTree is no valid packed tree; the message says why."""


class TreeTooLarge(ValueError):
    """The HyperNodes do not fit into one API object; the message has the size."""


class TreeContent(Struct, frozen=True, omit_defaults=True):
    """The decoded JSON of a packed tree: HyperNodes, and nodes that the provider excludes."""

    hypernodes: tuple[HyperNode, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()


_DECODER = msgspec.json.Decoder(TreeContent)


def pack(hypernodes: Iterable[HyperNode], quarantined: Iterable[Quarantined] = ()) -> str:
    """Pack HyperNodes into a text for a ProviderTree; equal HyperNodes in another order give the same text.

    Raises:
        TreeTooLarge: the text exceeds MAX_PACKED, or its JSON MAX_BYTES.
    """
    ordered = tuple(sorted(hypernodes, key=lambda each: each.name))
    data = msgspec.json.encode(TreeContent(ordered, tuple(sorted(quarantined))))
    if len(data) > MAX_BYTES:
        raise TreeTooLarge(f"the tree has {len(data)} bytes; {MAX_BYTES} are possible")
    text = b64encode(zlib.compress(data)).decode("ascii")
    if len(text) > MAX_PACKED:
        raise TreeTooLarge(f"the compressed tree has {len(text)} characters; {MAX_PACKED} are possible")
    return text


def unpack(text: str) -> Event:
    """Unpack the text of a ProviderTree into a snapshot event. The HyperNodes are not checked yet (HyperNodeSet).

    Raises:
        InvalidTree: the text is no packed tree, or too large.
    """
    if len(text) > MAX_PACKED:
        raise InvalidTree(f"it has more than {MAX_PACKED} characters")
    return decode(_decompressed(text))


def checked(text: str) -> "HyperNodeSet":
    """Return the HyperNodes in the text of a ProviderTree.

    Raises:
        InvalidTree, Refused: they cannot be used; no message has content of the text.
    """
    found = HyperNodeSet()
    found.apply(unpack(text), first=True)
    return found


def decode(data: bytes) -> Event:
    """Decode the JSON of a packed tree into a snapshot event.

    Raises:
        InvalidTree: the JSON has another form, or more than MAX_VALUES values.
    """
    # Each value and each key follows one of these characters.
    if sum(data.count(one) for one in b",:[{") > MAX_VALUES:
        raise InvalidTree(f"it has more than {MAX_VALUES} values")
    try:
        found = _DECODER.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        # The decoder's own words may quote the text.
        raise InvalidTree("its JSON is no list of HyperNodes") from None
    return Event(Action.SNAPSHOT, found.hypernodes, quarantined=found.quarantined)


def _decompressed(text: str) -> bytes:
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(b64decode(text, validate=True), MAX_BYTES + 1)
    except (binascii.Error, ValueError, zlib.error):
        raise InvalidTree("the packed tree is not compressed by zlib and in base64") from None
    if len(data) > MAX_BYTES:
        raise InvalidTree(f"its JSON has more than {MAX_BYTES} bytes")
    if not stream.eof or stream.unused_data:
        raise InvalidTree("the packed tree is truncated, or has data after its end")
    return data


MAX_HYPERNODES = 50_000
MAX_MEMBERS = 200_000
"""Limit of members of all HyperNodes of a provider together."""
MAX_DEPTH = 32
"""Limit of nested HyperNodes. A tree has at most 14 levels (`topology.levels`)."""
MAX_TIER = 1_000

_LONGEST_NAME = 253
_MAX_MESSAGE = 300
_TIER_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
# RFC 1123, as Kubernetes requires of a Node.
_NODE = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")


class Refused(Exception):
    """A provider's event is invalid and is not applied.

    `kind` has no content of the source; `reply` may, for the provider alone.
    """

    def __init__(self, kind: str, name: str = "", detail: str = "") -> None:
        self.kind = kind
        self.reply = Reply(name, f"{kind}: {detail}" if detail else kind)
        super().__init__(kind)


class _Change(Struct):
    """The effect of an event: HyperNodes to set, names to remove, and the parents of the members to set."""

    new: dict[str, HyperNode]
    removed: frozenset[str]
    parents: dict[Member, str]


class HyperNodeSet:
    """The HyperNodes of one provider, and the parent of each member. Only one thread at a time may use it."""

    def __init__(self) -> None:
        self._hypernodes: dict[str, HyperNode] = {}
        self._parents: dict[Member, str] = {}
        self.quarantined: tuple[Quarantined, ...] = ()
        """The nodes that the last snapshot quarantines."""

    @property
    def hypernodes(self) -> Mapping[str, HyperNode]:
        """Return the provider's HyperNodes by name; copy them before the next event."""
        return self._hypernodes

    def apply(self, event: Event, *, first: bool = False) -> None:
        """Apply a provider's event; the first event after the provider's start must be a snapshot.

        Raises:
            Refused: the event is invalid; the HyperNodes are unchanged.
        """
        if event.action is Action.SNAPSHOT:
            fresh = HyperNodeSet()
            fresh._apply(_parse(event))
            fresh.quarantined = _quarantined(event)
            self._hypernodes, self._parents, self.quarantined = fresh._hypernodes, fresh._parents, fresh.quarantined
        elif first:
            raise Refused("an event before the first snapshot")
        else:
            self._apply(_parse(event))

    def _apply(self, change: _Change) -> None:
        self._check_size(change)
        self._check_parents(change)
        self._check_depth(change)
        for name in (*change.removed, *change.new):
            old = self._hypernodes.pop(name, None)
            for member in old.members if old else ():
                del self._parents[member]
        self._hypernodes |= change.new
        self._parents |= change.parents

    def _check_size(self, change: _Change) -> None:
        replaced = [old for name in (*change.removed, *change.new) if (old := self._hypernodes.get(name))]
        if len(self._hypernodes) - len(replaced) + len(change.new) > MAX_HYPERNODES:
            raise Refused(f"more than {MAX_HYPERNODES} HyperNodes")
        if len(self._parents) - sum(len(old.members) for old in replaced) + len(change.parents) > MAX_MEMBERS:
            raise Refused(f"more than {MAX_MEMBERS} members")

    def _check_parents(self, change: _Change) -> None:
        for member, parent in change.parents.items():
            other = self._parents.get(member)
            if other is not None and other not in change.new and other not in change.removed:
                raise Refused("a member has two parents", parent, f"{member.name} is a member of {other}")
            if member.kind == "HyperNode" and not self._will_exist(member.name, change):
                raise Refused("a member does not exist", parent, f"no HyperNode {member.name}")
        for name in change.removed:
            parent_of_removed = self._parent(name, change)
            if parent_of_removed is not None:
                raise Refused("a deleted HyperNode is still a member", name, f"of {parent_of_removed}")

    def _check_depth(self, change: _Change) -> None:
        """Refuse a HyperNode in a cycle or below too many others: one which changes, or lies below a change."""
        seen: set[str] = set()
        waiting = list(change.new)
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            above = [parent for parent, _ in zip(self._ancestors(name, change), range(MAX_DEPTH), strict=False)]
            if name in above:
                raise Refused("a HyperNode contains itself", name)
            if len(above) == MAX_DEPTH:
                raise Refused(f"a HyperNode lies below {MAX_DEPTH} others", name)
            hypernode = change.new.get(name) or self._hypernodes[name]
            waiting += [member.name for member in hypernode.members if member.kind == "HyperNode"]

    def _ancestors(self, name: str, change: _Change) -> Iterator[str]:
        parent = self._parent(name, change)
        while parent is not None:
            yield parent
            parent = self._parent(parent, change)

    def _parent(self, name: str, change: _Change) -> str | None:
        """Return the parent that a HyperNode will have."""
        member = Member("HyperNode", name)
        if member in change.parents:
            return change.parents[member]
        parent = self._parents.get(member)
        return None if parent in change.new or parent in change.removed else parent

    def _will_exist(self, name: str, change: _Change) -> bool:
        return name in change.new or (name in self._hypernodes and name not in change.removed)


def _parse(event: Event) -> _Change:
    """Return what an event would do, with every value checked that can be checked alone.

    Raises:
        Refused: a value is not legal.
    """
    if len(event.hypernodes) > MAX_HYPERNODES:
        raise Refused(f"more than {MAX_HYPERNODES} HyperNodes")
    names: dict[str, HyperNode] = {}
    for hypernode in event.hypernodes:
        if not _is_name(hypernode.name):
            raise Refused("an illegal name", hypernode.name)
        if hypernode.name in names:
            raise Refused("an event has a HyperNode twice", hypernode.name)
        names[hypernode.name] = hypernode
    if event.action is Action.DELETE:
        return _Change({}, frozenset(names), {})
    parents: dict[Member, str] = {}
    for hypernode in event.hypernodes:
        _check_hypernode(hypernode)
        for member in hypernode.members:
            if (other := parents.setdefault(member, hypernode.name)) != hypernode.name:
                raise Refused("a member has two parents", hypernode.name, f"{member.name} is a member of {other}")
    return _Change(names, frozenset(), parents)


def _quarantined(event: Event) -> tuple[Quarantined, ...]:
    if len(event.quarantined) > MAX_MEMBERS:
        raise Refused(f"more than {MAX_MEMBERS} quarantined nodes")
    for one in event.quarantined:
        if not _NODE.fullmatch(one.node):
            raise Refused("an illegal name of a quarantined node", one.node[:300])
    return tuple([Quarantined(one.node, one.why, escape(one.message[:_MAX_MESSAGE])) for one in event.quarantined])


def _is_name(name: str) -> bool:
    """Return whether a HyperNode may have this name.

    A provider's names are its own, such as descriptions and GUIDs of switches: objects get legal ones later.
    """
    return 0 < len(name) <= _LONGEST_NAME and name.isprintable() and name == name.strip()


def _check_hypernode(hypernode: HyperNode) -> None:
    if not _TIER_NAME.fullmatch(hypernode.tier_name):
        raise Refused("an illegal tier name", hypernode.name, hypernode.tier_name[:100])
    if not 0 <= hypernode.tier <= MAX_TIER:
        raise Refused("an illegal tier", hypernode.name, f"it must be from 0 to {MAX_TIER}")
    if len(set(hypernode.members)) < len(hypernode.members):
        raise Refused("a HyperNode has a member twice", hypernode.name)
    for member in hypernode.members:
        if not (_NODE.fullmatch(member.name) if member.kind == "Node" else _is_name(member.name)):
            raise Refused(f"an illegal name of a {member.kind}", hypernode.name, member.name[:300])
