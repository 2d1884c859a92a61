"""When an image was created, as it says of itself; the signature of its digest covers what it says.

Source: OCI image-spec, annotations.md (org.opencontainers.image.created) and config.md (created); both RFC 3339.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

ANNOTATION = "org.opencontainers.image.created"
_MAX_TEXT = 64
_NEVER = datetime(1970, 1, 2, tzinfo=UTC)
"""Builds that are to be repeatable state 1970, and Go the year 1, for no time at all."""


def creation_time(stated: Iterable[str]) -> datetime | None:
    """Return the first time among the texts that states one, to the second; None where none does."""
    return next((time for text in stated if (time := _time(text)) is not None), None)


def _time(text: str) -> datetime | None:
    if not 0 < len(text) <= _MAX_TEXT:
        return None
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            return None
        time = time.astimezone(UTC).replace(microsecond=0)
    except (ValueError, OverflowError):
        return None
    return time if time >= _NEVER else None
