"""Limit the memory that a process uses for one watched object.

A user fills annotations, owners and lists up to 1.5 MB an object, and a process holds thousands of objects. So a
reflector holds no more than MAX_HELD_BYTES of each: a larger object is held as its outline, if its type has one, and
refused otherwise. An outline has `oversized`, which names the field; who needs the rest reads the object again.
"""

from collections.abc import Iterator
from functools import cache
from sys import getsizeof
from typing import Any, Protocol, Self, runtime_checkable

from msgspec import Raw, Struct

from gkm.api.mnnvl_metadata import SHARED_KEYS

MAX_HELD_BYTES = 3584
"""Limit of bytes of one decoded object; with its entry in a reflector it takes at most 4 KiB."""
_BY_CONTROLLERS = "status"
"""Users cannot write it: each of these kinds has a status subresource."""
_SHOWN = 253


@runtime_checkable
class HasOutline(Protocol):
    """A watched object that can be reduced to save memory: its large fields can be left out."""

    def outline(self, why: str) -> Self:
        """Return a copy without the fields that users fill; the reason `why` is stored in it."""


def bounded(value: Any) -> Any:  # noqa: ANN401 -- of any type, and the same is returned
    """Return a watched object if it is small enough, otherwise its reduced copy.

    Raises:
        ValueError: it takes more than MAX_HELD_BYTES, and has no outline; the message names the largest field.
    """
    size = held_bytes(value)
    if size <= MAX_HELD_BYTES:
        return value
    why = f"{largest_field(value)}: it takes {size} bytes in memory; at most {MAX_HELD_BYTES} are held"
    outlined = value.outline(why) if isinstance(value, HasOutline) else value
    if held_bytes(outlined) > MAX_HELD_BYTES:
        raise ValueError(why)
    return outlined


def held_bytes(value: object) -> int:
    """Return the bytes that a decoded object takes in memory, without its status."""
    if not isinstance(value, Struct):
        return _size([value])
    return getsizeof(value) + _size([getattr(value, name) for name in _held_names(type(value))])


def largest_field(value: object) -> str:
    """Return the path of the field that takes the most memory in an object, such as `spec.nodeSelector`."""
    path: list[str] = []
    while isinstance(value, Struct):
        parts = [(_size([part]), name, part) for name, part in _fields(value) if name != _BY_CONTROLLERS or path]
        if not parts:
            break
        _, name, value = max(parts, key=lambda part: part[0])
        path.append(name)
    return ".".join(path)[:_SHOWN] or "the object"


def _fields(value: Struct) -> Iterator[tuple[str, Any]]:
    names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    return ((encoded, getattr(value, name)) for encoded, name in names)


@cache
def _held_names(kind: type[Struct]) -> tuple[str, ...]:
    """Return the fields that users can write."""
    names = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
    return tuple(name for encoded, name in names if encoded != _BY_CONTROLLERS)


def _size(rest: list[object]) -> int:
    """Return the bytes of all values in a list, which this empties."""
    total = 0
    while rest:
        one = rest.pop()
        if one is None or one is True or one is False:
            continue
        if isinstance(one, str):  # most are
            total += getsizeof(one)
            continue
        total += memoryview(one).nbytes if isinstance(one, Raw) else getsizeof(one)
        if isinstance(one, Struct):
            rest += [getattr(one, name) for name in one.__struct_fields__]
        elif isinstance(one, dict):
            rest += [*(one.keys() - SHARED_KEYS), *one.values()]
        elif isinstance(one, tuple | list | frozenset | set):
            rest += one
    return total
