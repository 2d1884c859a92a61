"""Values in JSON of any shape, which comes from a cluster. Pure."""

from datetime import datetime
from typing import Any


def at(value: Any, *path: str) -> Any:  # noqa: ANN401 -- JSON
    """Return the value at a path, None if the path does not exist."""
    for step in path:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


def items_at(value: object, *path: str) -> list[Any]:
    """Return the list at a path, an empty one if the path holds no list."""
    found = at(value, *path)
    return found if isinstance(found, list) else []


def text_at(value: object, *path: str) -> str:
    """Return the text at a path, "" if the path holds no text."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def moment(text: object) -> datetime | None:
    """Return the moment that a text with a time zone names; None for anything else."""
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None
