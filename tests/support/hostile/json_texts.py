"""JSON that costs a decoder much: for a type, every list, mapping and text in it filled with as much as there may be.

Built from the type alone, so a field that is added tomorrow is filled tomorrow.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

DEEPEST = 7
WIDE = '"中1"'.encode()
"""A short text that takes 80 bytes: two bytes a character, and no character that Python has ready."""
WIDEST = '"\U0001f600'.encode()
"""The beginning of a text that takes four bytes a character."""
SAMPLES = {
    "digest": b'"sha256:%s"' % (b"1" * 64),
    "image": b'"r.test/a:1"',
    "resourceVersion": b'"1"',
    "size": b"1",
    "name": b'"x"',
}
"""Values by the name of a field whose type alone does not say what it accepts."""
NONSENSE = (b"[]", b"{}", b"0", b'"a"', b'{"a":[]}', b"[[]]")


class Text(NamedTuple):
    """A JSON text, and where in it the filling is."""

    where: str
    text: bytes


class _Hole(NamedTuple):
    where: str
    before: bytes
    after: bytes
    fill: Callable[[int], bytes]


def texts(kind: Any, size: int) -> Iterator[Text]:  # noqa: ANN401 -- any type
    """Yield texts of about `size` bytes."""
    info = inspect.type_info(kind)
    for hole in _holes(info, "$", DEEPEST):
        text = hole.before + hole.fill(max(1, size - len(hole.before) - len(hole.after))) + hole.after
        yield Text(hole.where, text)
    for value in NONSENSE:
        yield Text(f"$ is a list of {value.decode()}", b"[" + _repeated(value, size - 2) + b"]")
        unknown = _value(info, DEEPEST)
        if unknown.startswith(b"{"):
            comma = b"," if len(unknown) > 2 else b""
            filling = _repeated(value, max(1, size - len(unknown) - 20))
            yield Text(f"$.unknown of {value.decode()}", b'{"unknown":[' + filling + b"]" + comma + unknown[1:])
    yield Text("$ is deep", b"[" * (size // 2) + b"]" * (size // 2))


def _repeated(value: bytes, size: int) -> bytes:
    return b",".join([value] * max(1, size // (len(value) + 1)))


def _pairs(value: bytes, size: int) -> bytes:
    one = len(value) + 11
    return b",".join(b'"%07x":%b' % (number, value) for number in range(max(1, size // one)))


def _holes(info: Any, where: str, depth: int) -> Iterator[_Hole]:  # noqa: ANN401, C901, PLR0912 -- a case for each type
    if depth == 0:
        return
    match info:
        case inspect.Metadata():
            yield from _holes(info.type, where, depth)
        case inspect.UnionType():
            for one in info.types:
                yield from _holes(one, where, depth)
        case inspect.StructType() | inspect.DataclassType() | inspect.TypedDictType():
            for field in info.fields:
                others = _fields(info, depth, but=field.name)
                comma = b"," if others else b""
                before, after = b"{" + others + comma + b'"%b":' % field.encode_name.encode(), b"}"
                for hole in _holes(field.type, f"{where}.{field.encode_name}", depth - 1):
                    yield _Hole(hole.where, before + hole.before, hole.after + after, hole.fill)
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            for value in {_value(info.item_type, depth - 1), _rich(info.item_type, depth - 1), *NONSENSE}:
                yield _Hole(
                    f"{where}[{value[:40].decode('ascii', 'replace')}]",
                    b"[",
                    b"]",
                    partial(_repeated, value),
                )
            for hole in _holes(info.item_type, f"{where}[0]", depth - 1):
                yield _Hole(hole.where, b"[" + hole.before, hole.after + b"]", hole.fill)
        case inspect.DictType():
            for value in {_value(info.value_type, depth - 1), _rich(info.value_type, depth - 1)}:
                yield _Hole(
                    f"{where}{{{value[:40].decode('ascii', 'replace')}}}",
                    b"{",
                    b"}",
                    partial(_pairs, value),
                )
            for hole in _holes(info.value_type, f"{where}{{}}", depth - 1):
                yield _Hole(hole.where, b'{"a":' + hole.before, hole.after + b"}", hole.fill)
        case inspect.StrType():
            yield _Hole(where, WIDEST, b'"', lambda size: b"a" * size)
            yield _Hole(f"{where} escaped", b'"', b'"', lambda size: b"\\u4e2d" * (size // 6))
        case inspect.AnyType() | inspect.RawType():
            for value in NONSENSE:
                yield _Hole(f"{where} of {value.decode()}", b"[", b"]", partial(_repeated, value))
            yield _Hole(f"{where} of pairs", b"{", b"}", partial(_pairs, b"[]"))


def _fields(info: Any, depth: int, but: str = "", *, rich: bool = False) -> bytes:  # noqa: ANN401
    parts = [b'"%b":"%b"' % (info.tag_field.encode(), info.tag.encode())] if getattr(info, "tag_field", None) else []
    for field in info.fields:
        if field.name == but or not (field.required or rich):
            continue
        value = SAMPLES.get(field.encode_name) or (_rich if rich else _value)(field.type, depth - 1)
        parts.append(b'"%b":%b' % (field.encode_name.encode(), value))
    return b",".join(parts)


def _value(info: Any, depth: int) -> bytes:  # noqa: ANN401
    """Return the shortest text of a value."""
    return _made(info, depth, rich=False)


def _rich(info: Any, depth: int) -> bytes:  # noqa: ANN401
    """Return a text of a value with something in every field."""
    return _made(info, depth, rich=True)


def _made(info: Any, depth: int, *, rich: bool) -> bytes:  # noqa: ANN401, C901, PLR0911, PLR0912 -- a case for each type
    if depth <= 0:
        return b"null"
    match info:
        case inspect.Metadata():
            return _made(info.type, depth, rich=rich)
        case inspect.UnionType():
            known = [one for one in info.types if not isinstance(one, inspect.NoneType)]
            return _made(known[0], depth, rich=rich) if known else b"null"
        case inspect.StructType():
            return b"{" + _fields(info, depth, rich=rich) + b"}"
        case inspect.ListType() | inspect.VarTupleType():
            return b"[" + (_made(info.item_type, depth - 1, rich=rich) if rich else b"") + b"]"
        case inspect.DictType():
            return b"{" + (b'"a":' + _made(info.value_type, depth - 1, rich=rich) if rich else b"") + b"}"
        case inspect.StrType():
            return WIDE if info.pattern is None else b'"1"'
        case inspect.IntType():
            return b"%d" % max(info.ge or 0, (info.gt or -1) + 1, 0)
        case inspect.FloatType():
            return b"1.5"
        case inspect.BoolType():
            return b"true"
        case inspect.EnumType():
            return msgspec.json.encode(next(iter(info.cls)).value)
        case inspect.LiteralType():
            return msgspec.json.encode(info.values[0])
        case inspect.DateTimeType():
            return b'"2030-01-01T00:00:00Z"'
        case inspect.RawType() | inspect.AnyType():
            return b"{}"
    return b"null"
