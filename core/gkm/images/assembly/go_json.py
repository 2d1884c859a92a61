"""JSON as Go's encoding/json writes it, because manifest.json and the labels must equal MCV's, byte for byte.

By the package's documentation (Marshal, MarshalIndent, HTMLEscape): map keys are sorted by their bytes, <, > and & are
escaped, and numbers of unknown type are 64-bit floating point. Struct fields keep their declared order: here a dict is
a struct, and `as_map` turns foreign JSON into a map.
"""

from decimal import Decimal

import msgspec
from msgspec import Raw

MAX_DEPTH = 32
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})
_LARGE, _SMALL = 1e21, 1e-6


def marshal(value: object) -> str:
    """Return a value as compact JSON, as Go writes it."""
    return msgspec.json.encode(_with_numbers(value)).decode().translate(_ESCAPES)


def marshal_indent(value: object) -> str:
    """Return a value as JSON indented by two spaces, as Go writes it, without a newline at the end."""
    return msgspec.json.format(marshal(value), indent=2)


def as_map(value: object, depth: int = 0) -> object:
    """Return foreign JSON as Go's `interface{}` holds it: maps sorted, every number a float.

    Raises:
        ValueError: a number is too large for Go, or the nesting is deeper than MAX_DEPTH.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, dict):
        return {key: as_map(value[key], depth + 1) for key in sorted(value)}
    if isinstance(value, list):
        return [as_map(item, depth + 1) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError as error:
            raise ValueError("a number is too large") from error
    return value


def _with_numbers(value: object) -> object:
    """Return a value whose floats are texts of JSON already."""
    if isinstance(value, dict):
        return {key: _with_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_numbers(item) for item in value]
    return Raw(_number(value).encode()) if isinstance(value, float) else value


def _number(value: float) -> str:
    """Return the shortest digits, with an exponent only below 1e-6 and from 1e21 on (as ECMAScript does)."""
    if value and not _SMALL <= abs(value) < _LARGE:
        digits, _, exponent = repr(value).partition("e")
        return f"{digits.removesuffix('.0')}e{exponent[0]}{exponent[1:].lstrip('0')}"
    text = format(Decimal(repr(value)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
