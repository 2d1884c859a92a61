"""What the parts of the agent hand each other."""

from dataclasses import dataclass

from gkm.api.caches import Cache
from gkm.hoststate.names import CacheRef


@dataclass(frozen=True, slots=True)
class PullHold:
    """Why a wanted cache must not be fetched now: nobody has vouched for it yet, or (`final`) somebody refused it.

    `digest` is what was refused, "" where nothing was resolved.
    """

    reason: str
    message: str
    final: bool = False
    digest: str = ""


@dataclass(frozen=True, slots=True)
class WantedCache:
    """A cache object that this node should make real.

    `digest` is what the controller resolved and verified; None where there is no controller and the agent resolves by
    itself, or while `hold` says what is waited for. `selected` is false for a cache that does not choose its nodes:
    that one is for every node with a GPU. `uid` is the object's, "" without Kubernetes: an object that was deleted and
    made again under its name is another one, and may be another tenant's.
    """

    ref: CacheRef
    image: str
    digest: str | None = None
    hold: PullHold | None = None
    selected: bool = True
    pull_secrets: tuple[str, ...] = ()
    uid: str = ""


def pull_secrets(cache: Cache) -> tuple[str, ...]:
    """Return the names of the Secrets of its namespace that open the registry of a cache."""
    return tuple(reference.name for reference in cache.spec.image_pull_secrets)


@dataclass(frozen=True, slots=True)
class Attempt:
    """The last try of a cache that failed: `count` in a row, `next_try` in seconds since the epoch."""

    wanted: WantedCache
    count: int
    next_try: float
