"""How old an image is, and whether one is older than another. Pure.

A signature does not expire: who may push, but not sign, can push an old signed image under a tag again. What tells is
the time when the image was created (its digest covers it), and else the time when it was first signed. An image with
neither is never older.
"""

from dataclasses import dataclass
from datetime import datetime

from gkm.api.caches import CacheStatus
from gkm.api.meta import timestamp


@dataclass(frozen=True, slots=True)
class Age:
    """When an image was created, as it states, and first signed, as a log or timestamp authority vouches.

    What it states is unknown where it is not `readable`.
    """

    created: datetime | None = None
    signed: datetime | None = None
    readable: bool = True


NO_AGE = Age()


def of_status(status: CacheStatus) -> Age:
    """Return the age of status.resolvedDigest."""
    return Age(_read(status.image_created), _read(status.image_signed))


def written(time: datetime | None) -> str | None:
    """Return a time as the status has it."""
    return None if time is None else timestamp(time)


def merged(new: Age, known: Age) -> Age:
    """Return what is known of one image: that it cannot be read any more changes nothing of when it was made."""
    signed = [time for time in (new.signed, known.signed) if time is not None]
    return Age(new.created or known.created, min(signed, default=None))


def older(new: Age, old: Age) -> str:
    """Return why `new` is older than `old`, for a sentence; "" where it is not, or where nothing tells.

    The first kind of time decides that both have and that differs. An image that hides what it states is taken for an
    older one where the present one states its time: a registry must not decide by what it answers.
    """
    if not new.readable and old.created is not None:
        return f"it cannot be read, and the present one was created {timestamp(old.created)}"
    for done, mine, other in (("created", new.created, old.created), ("signed", new.signed, old.signed)):
        if mine is None or other is None or mine == other:
            continue
        return f"it was {done} {timestamp(mine)}, the present one {timestamp(other)}" if mine < other else ""
    return ""


def _read(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
