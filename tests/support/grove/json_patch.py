"""Applies the operation `add` of JSON patches (RFC 6902) as the API server does: a patch that does not fit fails."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any


def patched(document: Any, operations: Iterable[Mapping[str, Any]]) -> Any:  # noqa: ANN401 -- JSON
    """Return a changed copy of a document.

    Raises:
        ValueError: an operation is not `add`, or its index is not one of the list.
        KeyError: the parent of the place does not exist.
    """
    made = copy.deepcopy(document)
    for operation in operations:
        if set(operation) != {"op", "path", "value"} or operation["op"] != "add":
            raise ValueError(f"not an `add`: {operation}")
        *parents, last = map(_unescaped, operation["path"].split("/")[1:])
        target = made
        for step in parents:
            target = target[_index(step, len(target) - 1)] if isinstance(target, list) else target[step]
        value = copy.deepcopy(operation["value"])
        if isinstance(target, list):
            target.insert(len(target) if last == "-" else _index(last, len(target)), value)
        elif isinstance(target, dict):
            target[last] = value
        else:
            raise KeyError(operation["path"])
    return made


def _unescaped(token: str) -> str:
    return token.replace("~1", "/").replace("~0", "~")


def _index(token: str, last: int) -> int:
    if not token.isdecimal() or str(int(token)) != token or int(token) > last:
        raise ValueError(f"{token!r} is no index up to {last}")
    return int(token)
