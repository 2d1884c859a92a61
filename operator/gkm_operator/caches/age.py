"""The age of an image, and whether one image is older than another. Pure.

A signature does not expire: with push rights alone, an attacker can push an old signed image under a tag again. The
order of two images follows from the creation time that the image states (its digest covers it), or else from the time
of the first signature. An image with neither is never older.
"""

from dataclasses import dataclass
from datetime import datetime

from gkm.api.caches import CacheStatus
from gkm.api.meta import timestamp


@dataclass(frozen=True, slots=True)
class Age:
    """Creation time as the image states it, and time of the first signature as a log or timestamp authority attests it.

    The stated time is unknown when the image is not `readable`.
    """

    created: datetime | None = None
    signed: datetime | None = None
    readable: bool = True


NO_AGE = Age()


def of_status(status: CacheStatus) -> Age:
    """Return the age of status.resolvedDigest."""
    return Age(_read(status.image_created), _read(status.image_signed))


def written(time: datetime | None) -> str | None:
    """Return a time in the format of the status."""
    return None if time is None else timestamp(time)


def merged(new: Age, known: Age) -> Age:
    """Return the combined knowledge about one image: that it became unreadable does not change its creation time."""
    signed = [time for time in (new.signed, known.signed) if time is not None]
    return Age(new.created or known.created, min(signed, default=None))


def older(new: Age, old: Age) -> str:
    """Return the reason why `new` is older than `old`, for a sentence; "" when it is not or the order is unknown.

    The first kind of time that both have and that differs decides. An image that hides its creation time counts as
    older when the present one states its own: a registry must not influence the order by withholding data.
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
