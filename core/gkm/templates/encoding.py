"""Objects as JSON, with a limit on their bytes. Pure."""

import msgspec

from gkm.templates.values import TemplateInvalid

_ESCAPED = {"<": 5, ">": 5, "&": 5, "\u2028": 3, "\u2029": 3}
"""The bytes that the API server adds for characters that Go's encoding/json writes as six bytes."""


def encoded(value: object, limit: int, what: str) -> bytes:
    """Return a value as JSON; raise TemplateInvalid if it exceeds `limit` bytes or is not JSON.

    Messages call it `what`.
    """
    text = _json(value, what)
    if len(text) > limit:
        raise TemplateInvalid(f"{what} have {len(text)} bytes as JSON; the limit is {limit}")
    return text


def stored_bytes(value: object, what: str) -> int:
    """Return how many bytes a value takes in the API server; raise TemplateInvalid if it is not JSON."""
    text = _json(value, what)
    return len(text) + sum(text.count(each.encode()) * more for each, more in _ESCAPED.items())


def _json(value: object, what: str) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (RecursionError, UnicodeEncodeError, OverflowError) as error:
        raise TemplateInvalid(f"{what} cannot be written as JSON: {type(error).__name__}") from None
