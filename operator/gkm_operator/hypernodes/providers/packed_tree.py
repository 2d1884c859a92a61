"""A provider's HyperNodes as one short text: JSON, compressed by zlib, in base64. Pure.

The text in an object may be forged. So unpacking is limited in bytes and in values before a decoder allocates objects,
and no error has content of the text.
"""

import binascii
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable

import msgspec
from gkm.api.provider_trees import MAX_PACKED
from gkm.topology.hypernodes import HyperNode
from gkm.topology.providers import Action, Event
from gkm.topology.quarantine import Quarantined
from msgspec import Struct

MAX_BYTES = 32 << 20
"""Of the JSON. 12,500 nodes with names of 20 characters have 0.7 MiB."""
MAX_VALUES = 1_500_000
"""Values in the JSON. 50,000 HyperNodes with 200,000 members have at most 1,250,000 (intake.py)."""


class InvalidTree(ValueError):
    """A text that is no packed tree."""


class TreeTooLarge(ValueError):
    """HyperNodes that do not fit into one object."""


class TreeContent(Struct, frozen=True, omit_defaults=True):
    """What is in the JSON."""

    hypernodes: tuple[HyperNode, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()


_DECODER = msgspec.json.Decoder(TreeContent)


def pack(hypernodes: Iterable[HyperNode], quarantined: Iterable[Quarantined] = ()) -> str:
    """Return the text; equal HyperNodes in another order have an equal text.

    Raises:
        TreeTooLarge: it would be longer than MAX_PACKED, or its JSON than MAX_BYTES.
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
    """Return the snapshot in a text. Its HyperNodes are not checked (intake.HyperNodeSet).

    Raises:
        InvalidTree: it is no packed tree, or larger than one may be.
    """
    if len(text) > MAX_PACKED:
        raise InvalidTree(f"it has more than {MAX_PACKED} characters")
    return decode(_decompressed(text))


def decode(data: bytes) -> Event:
    """Return the snapshot in the JSON of a tree.

    Raises:
        InvalidTree: it has another form, or more than MAX_VALUES values.
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
        raise InvalidTree("it is not compressed by zlib and in base64") from None
    if len(data) > MAX_BYTES:
        raise InvalidTree(f"its JSON has more than {MAX_BYTES} bytes")
    if not stream.eof or stream.unused_data:
        raise InvalidTree("it ends in the middle, or has something behind its end")
    return data
