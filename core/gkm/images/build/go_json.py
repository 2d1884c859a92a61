"""JSON as Go's encoding/json writes it, because manifest.json and the labels must equal MCV's, byte for byte.

By the package's documentation (Marshal, MarshalIndent, HTMLEscape): map keys are sorted by their bytes, <, > and & are
escaped, and numbers of unknown type are 64-bit floating point. Struct fields keep their declared order: here a dict is
a struct, and `as_map` turns foreign JSON into a map.
"""

import json
from decimal import Decimal

MAX_DEPTH = 32
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})
_LARGE, _SMALL = 1e21, 1e-6


def marshal(value: object) -> str:
    """Return the compact form.

    Raises:
        ValueError: the value is not JSON, or Go could not have read it.
    """
    return _encoded(value, None, 0)


def marshal_indent(value: object) -> str:
    """Return the form with two spaces a level, without a newline at the end; raises as `marshal`."""
    return _encoded(value, "  ", 0)


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


def _encoded(value: object, indent: str | None, depth: int) -> str:
    if isinstance(value, dict):
        separator = ": " if indent else ":"
        pairs = [f"{_string(key)}{separator}{_encoded(item, indent, depth + 1)}" for key, item in value.items()]
        return _bracketed("{}", pairs, indent, depth)
    if isinstance(value, list):
        return _bracketed("[]", [_encoded(item, indent, depth + 1) for item in value], indent, depth)
    return _string(value) if isinstance(value, str) else _scalar(value)


def _bracketed(brackets: str, items: list[str], indent: str | None, depth: int) -> str:
    if not items or indent is None:
        return f"{brackets[0]}{','.join(items)}{brackets[1]}"
    line = "\n" + indent * (depth + 1)
    return f"{brackets[0]}{line}{f',{line}'.join(items)}\n{indent * depth}{brackets[1]}"


def _string(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).translate(_ESCAPES)


def _scalar(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _number(value)
    raise ValueError(f"{type(value).__name__} is not JSON")


def _number(value: float) -> str:
    """Return the shortest digits, with an exponent only below 1e-6 and from 1e21 on (as ECMAScript does)."""
    if value and not _SMALL <= abs(value) < _LARGE:
        digits, _, exponent = repr(value).partition("e")
        return f"{digits.removesuffix('.0')}e{exponent[0]}{exponent[1:].lstrip('0')}"
    text = format(Decimal(repr(value)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
