"""What to do next about one cache: from what is wanted and what is known, to one step. Pure.

The states are those of docs/design/node-state.md. A step that needs nobody else is said at once; one that needs the
registry becomes a pull.
"""

from dataclasses import dataclass, replace

from gkm.api.errors import Reason
from gkm.gpus import preflight
from gkm.gpus.preflight import Preflight
from gkm.gpus.values import Inventory
from gkm.hoststate.pointers import CacheState, Pointer

from gkm_agent.checks import Check
from gkm_agent.values import Attempt, WantedCache

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 600.0
"""Seconds between tries of what time mends: the first, and the longest of the doubled ones."""
FIRST_LONG_PAUSE, LONGEST_LONG_PAUSE = 60.0, 1800.0
"""The same for what time alone does not mend: somebody may push or sign an image without touching the object."""
MAX_MESSAGE = 1024


@dataclass(frozen=True, slots=True)
class Known:
    """What this node has of a cache; `entry_bytes` is None where the store lacks what is meant, or holds it damaged."""

    pointer: Pointer | None = None
    check: Check | None = None
    entry_bytes: int | None = None
    attempt: Attempt | None = None


@dataclass(frozen=True, slots=True)
class Keep:
    """All is said."""


@dataclass(frozen=True, slots=True)
class Say:
    """Write this pointer."""

    pointer: Pointer


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the registry: verify, describe, fetch. `digest` is "" where the reference must be resolved first."""

    digest: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask, but not before `until` (seconds since the epoch)."""

    until: float


Step = Keep | Say | Ask | Wait


def decide(wanted: WantedCache, known: Known, inventory: Inventory, policy: str, now: float) -> Step:
    """Return the next step for a cache."""
    digest = meant(wanted, known.pointer, known.check)
    if wanted.hold is not None and (wanted.hold.final or not _is_ready(known.pointer, wanted)):
        state = CacheState.FAILED if wanted.hold.final else CacheState.PENDING
        return _said(known, pointer_of(wanted, "", state, wanted.hold.reason, wanted.hold.message))
    if inventory.unreadable:
        message = f"waiting until the GPUs of this node can be read: {'; '.join(inventory.errors)}"
        return _said(known, pointer_of(wanted, digest, CacheState.PENDING, Reason.GPU_LOST, message))
    if not counts(known.check, wanted, digest, policy):
        return _asked(wanted, known, digest, now)
    assert known.check is not None  # noqa: S101 -- it counts
    return _judged(wanted, known, known.check, inventory, now)


def meant(wanted: WantedCache, pointer: Pointer | None, check: Check | None) -> str:
    """Return the digest that is meant, "" where only the registry knows.

    A tag that nobody resolves for us is resolved until it leads to something that is let through, and then no more.
    """
    if wanted.digest is not None:
        return wanted.digest
    if check is not None and check.image == wanted.image:
        return check.digest
    return pointer.digest if pointer is not None and _is_ready(pointer, wanted) else ""


def counts(check: Check | None, wanted: WantedCache, digest: str, policy: str) -> bool:
    """Return whether a check still says that this image may be used."""
    return check is not None and (check.image, check.digest, check.policy) == (wanted.image, digest, policy)


def pointer_of(
    wanted: WantedCache, digest: str, state: CacheState, reason: Reason | str = "", message: str = ""
) -> Pointer:
    """Return a pointer that says why a cache is in a state."""
    return Pointer(
        ref=wanted.ref, image=wanted.image, state=state, digest=digest, reason=str(reason), message=bounded(message)
    )


def verdict_pointer(
    wanted: WantedCache, check: Check, fit: Preflight, inventory: Inventory, entry_bytes: int | None
) -> Pointer:
    """Return what preflight comes to: Incompatible, or Ready (the entry must exist then)."""
    if not fit.fits:
        message = fit.message if fit.reason is Reason.NO_GPU else f"no GPU of this node fits: {fit.message}"
        pointer = pointer_of(wanted, check.digest, CacheState.INCOMPATIBLE, fit.reason or "", message)
    else:
        pointer = pointer_of(wanted, check.digest, CacheState.READY, message=check.notice)
        pointer = replace(pointer, progress=100)
    return replace(pointer, size_bytes=entry_bytes or 0, driver_version=inventory.driver_version)


def next_attempt(wanted: WantedCache, last: Attempt | None, *, transient: bool, now: float, jitter: float) -> Attempt:
    """Return when to try again after a failure; `jitter` in [0, 1) keeps nodes from asking all at once."""
    count = last.count + 1 if last is not None and last.wanted == wanted else 1
    first, longest = (FIRST_PAUSE, LONGEST_PAUSE) if transient else (FIRST_LONG_PAUSE, LONGEST_LONG_PAUSE)
    pause = min(longest, first * 2 ** min(count - 1, 16))
    return Attempt(wanted, count, now + pause * (0.8 + 0.4 * jitter))


def bounded(message: str) -> str:
    """Return a message as one line that fits the API."""
    line = " ".join(message.split())
    return line if len(line) <= MAX_MESSAGE else line[: MAX_MESSAGE - 1] + "…"


def same(one: Pointer | None, other: Pointer) -> bool:
    """Return whether two pointers say the same, whenever they said it."""
    return one is not None and replace(one, updated=other.updated) == other


def _judged(wanted: WantedCache, known: Known, check: Check, inventory: Inventory, now: float) -> Step:
    fit = preflight.check(check.targets, inventory.gpus)
    if fit.fits and known.entry_bytes is None:
        return _asked(wanted, known, check.digest, now)
    return _said(known, verdict_pointer(wanted, check, fit, inventory, known.entry_bytes))


def _asked(wanted: WantedCache, known: Known, digest: str, now: float) -> Step:
    attempt = known.attempt
    waits = attempt is not None and attempt.wanted == wanted and now < attempt.next_try
    # A pause longer than any of ours means that the clock was set back.
    if attempt is not None and waits and attempt.next_try - now <= LONGEST_LONG_PAUSE * 1.2:
        return Wait(attempt.next_try)
    return Ask(digest)


def _said(known: Known, pointer: Pointer) -> Step:
    return Keep() if same(known.pointer, pointer) else Say(pointer)


def _is_ready(pointer: Pointer | None, wanted: WantedCache) -> bool:
    return pointer is not None and pointer.state is CacheState.READY and pointer.image == wanted.image
