"""Data types that the packages of the agent share."""

from dataclasses import dataclass

from gkm.api.caches import Cache, CacheSpec
from gkm.hoststate import names
from gkm.hoststate.names import CacheRef, InvalidName


@dataclass(frozen=True, slots=True)
class PullHold:
    """The reason why the agent must not pull a wanted cache now: verification is not done, or (`final`) it refused.

    `digest` is the refused digest, "" if the controller resolved no digest.
    """

    reason: str
    message: str
    final: bool = False
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Membership:
    """The place of a cache in its family: the caches that one name in a volume stands for.

    `created` is the creation time of the object. `held_back`: it made pods fail more often than the generation before
    it, so a node takes it last.
    """

    family: str = ""
    generation: int = 0
    pinned: bool = False
    created: str = ""
    held_back: bool = False


@dataclass(frozen=True, slots=True)
class WantedCache:
    """A cache object that this node should have.

    `digest` is the digest that the controller resolved and verified. It is None while `hold` blocks the cache, and
    without a controller, where the agent resolves the reference itself. `selected` is False for a cache without a node
    selector, which every node with a GPU should have. `uid` is the uid of the object, "" without Kubernetes: an object
    that was deleted and created again under its name is another object, and may belong to another tenant.
    """

    ref: CacheRef
    image: str
    digest: str | None = None
    hold: PullHold | None = None
    selected: bool = True
    pull_secrets: tuple[str, ...] = ()
    uid: str = ""
    membership: Membership = Membership()


def membership(spec: CacheSpec, created: str | None = None, *, held_back: bool = False) -> Membership:
    """Return the place of a cache in its family. A family with an invalid name is ignored."""
    try:
        family = spec.family and names.cache_name(spec.family)
    except InvalidName:
        family = ""
    return Membership(family, spec.generation or 0, bool(spec.pinned), created or "", held_back)


def pull_secrets(cache: Cache) -> tuple[str, ...]:
    """Return the names of the image pull Secrets of a cache, in its namespace."""
    return tuple(reference.name for reference in cache.spec.image_pull_secrets)


@dataclass(frozen=True, slots=True)
class Attempt:
    """The last failed pull of a cache: `count` failures in a row, `next_try` in seconds since the epoch."""

    wanted: WantedCache
    count: int
    next_try: float
