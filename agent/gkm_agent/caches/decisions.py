"""What to do next about one cache: from what is wanted and what is known, to one step. Pure.

The states are those of docs/design/node-state.md. A step that needs nobody else is said at once; one that needs the
registry becomes a pull.
"""

from dataclasses import dataclass, replace

from gkm.api.errors import Reason
from gkm.api.signers import Signer
from gkm.gpus import preflight
from gkm.gpus.preflight import Preflight
from gkm.gpus.values import Inventory
from gkm.hoststate.pacing import Backoff
from gkm.hoststate.pointers import CacheState, Pointer

from gkm_agent.caches.approvals import Check
from gkm_agent.caches.model import Attempt, PullHold, WantedCache

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 5.0, 600.0
"""Seconds between tries of what time mends: the first, and the longest of the doubled ones."""
FIRST_PERMANENT_RETRY_SECONDS, LONGEST_PERMANENT_RETRY_SECONDS = 60.0, 1800.0
"""The same for what time alone does not mend: somebody may push or sign an image without touching the object."""
MAX_MESSAGE = 1024


@dataclass(frozen=True, slots=True)
class Observed:
    """What this node has of a cache; `entry_bytes` is None where the store lacks what is meant, or holds it damaged."""

    pointer: Pointer | None = None
    check: Check | None = None
    entry_bytes: int | None = None
    attempt: Attempt | None = None


@dataclass(frozen=True, slots=True)
class NoOp:
    """All is said."""


@dataclass(frozen=True, slots=True)
class WritePointer:
    """Write this pointer."""

    pointer: Pointer


@dataclass(frozen=True, slots=True)
class StartPull:
    """Ask the registry: verify, describe, fetch. `digest` is "" where the reference must be resolved first.

    `serving`: the cache is Ready, and stays so until it is let through, and also if it is not.
    """

    digest: str
    serving: bool = False


@dataclass(frozen=True, slots=True)
class RetryAt:
    """Ask, but not before `until` (seconds since the epoch)."""

    until: float


Action = NoOp | WritePointer | StartPull | RetryAt


def decide(
    wanted: WantedCache, known: Observed, inventory: Inventory, policy: str, now: float, *, serve_revoked: bool = False
) -> Action:
    """Return the next step for a cache; `keeps`: what is refused stays where it is served (whenRevoked)."""
    digest = wanted_digest(wanted, known.pointer, known.check)
    hold = wanted.hold
    if hold is not None and hold.final:
        return _after_refusal(wanted, known, hold, inventory, serve_revoked=serve_revoked)
    if hold is not None and not _is_ready(known.pointer, wanted):
        return _write_if_changed(known, make_pointer(wanted, "", CacheState.PENDING, hold.reason, hold.message))
    if inventory.unreadable:
        return _write_if_changed(known, _pending_gpus(wanted, digest, inventory))
    if not is_current(known.check, wanted, digest, policy):
        if not (serve_revoked and _may_stay_served(known, wanted, digest, inventory)):
            return _pull_or_retry(wanted, known, digest, now)
        said = _write_if_changed(known, _served_pointer(wanted, known, inventory))
        return said if isinstance(said, WritePointer) else _pull_or_retry(wanted, known, digest, now, serving=True)
    assert known.check is not None  # noqa: S101 -- it counts
    return _after_preflight(wanted, known, known.check, inventory, now)


def wanted_digest(wanted: WantedCache, pointer: Pointer | None, check: Check | None) -> str:
    """Return the digest that is meant, "" where only the registry knows.

    A tag that nobody resolves for us is resolved until it leads to something that is let through, and then no more.
    """
    if wanted.digest is not None:
        return wanted.digest
    if check is not None and (check.image, check.uid) == (wanted.image, wanted.uid):
        return check.digest
    return pointer.digest if pointer is not None and _is_ready(pointer, wanted) else ""


def is_current(check: Check | None, wanted: WantedCache, digest: str, policy: str) -> bool:
    """Return whether a check still says that this object may use this image."""
    if check is None or check.uid != wanted.uid:
        return False
    return (check.image, check.digest, check.policy) == (wanted.image, digest, policy)


def signers(check: Check | None, wanted: WantedCache, digest: str) -> tuple[Signer, ...]:
    """Return by whom this image was let through, as far as it is known."""
    same = check is not None and (check.image, check.digest) == (wanted.image, digest)
    return check.signers if check is not None and same else ()


def is_served(known: Observed, wanted: WantedCache, digest: str) -> bool:
    """Return whether this node serves this very image and digest to this object, or would if its GPUs could be read.

    Its check says that it was let through once; nothing is said of now.
    """
    pointer, check = known.pointer, known.check
    if not digest or pointer is None or check is None or known.entry_bytes is None:
        return False
    if not pointer.uid == check.uid == wanted.uid:
        return False
    same_image = (pointer.image, pointer.digest) == (check.image, check.digest) == (wanted.image, digest)
    lost = (pointer.state, pointer.reason) == (CacheState.PENDING, Reason.GPU_LOST)
    return same_image and (pointer.state is CacheState.READY or lost)


def serve_revoked_message(reason: Reason | str, message: str) -> str:
    """Return what a pointer says that stays Ready without being let through now."""
    return bounded(f"kept by verification.whenRevoked, and given to no further node ({reason}): {message}")


def make_pointer(
    wanted: WantedCache, digest: str, state: CacheState, reason: Reason | str = "", message: str = ""
) -> Pointer:
    """Return a pointer that says why a cache is in a state."""
    return Pointer(
        ref=wanted.ref,
        image=wanted.image,
        state=state,
        digest=digest,
        reason=str(reason),
        message=bounded(message),
        uid=wanted.uid,
    )


def verdict_pointer(
    wanted: WantedCache, check: Check, fit: Preflight, inventory: Inventory, entry_bytes: int | None
) -> Pointer:
    """Return what preflight comes to: Incompatible, or Ready (the entry must exist then)."""
    if not fit.fits:
        message = fit.message if fit.reason is Reason.NO_GPU else f"no GPU of this node fits: {fit.message}"
        pointer = make_pointer(wanted, check.digest, CacheState.INCOMPATIBLE, fit.reason or "", message)
    else:
        pointer = make_pointer(wanted, check.digest, CacheState.READY, message=check.notice)
        pointer = replace(pointer, progress=100)
    return replace(pointer, size_bytes=entry_bytes or 0, driver_version=inventory.driver_version)


def next_attempt(
    wanted: WantedCache, previous: Attempt | None, *, transient: bool, now: float, jitter: float
) -> Attempt:
    """Return when to try again after a failure; `jitter` in [0, 1) keeps nodes from asking all at once."""
    count = previous.count + 1 if previous is not None and previous.wanted == wanted else 1
    first, longest = (
        (FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        if transient
        else (FIRST_PERMANENT_RETRY_SECONDS, LONGEST_PERMANENT_RETRY_SECONDS)
    )
    pause = Backoff(first, longest).longest_pause(count)
    return Attempt(wanted, count, now + pause * (0.8 + 0.4 * jitter))


def bounded(message: str) -> str:
    """Return a message as one line that fits the API."""
    line = " ".join(message.split())
    return line if len(line) <= MAX_MESSAGE else line[: MAX_MESSAGE - 1] + "…"


def is_unchanged(one: Pointer | None, other: Pointer) -> bool:
    """Return whether two pointers say the same, whenever they said it."""
    return one is not None and replace(one, updated=other.updated) == other


def _after_preflight(wanted: WantedCache, known: Observed, check: Check, inventory: Inventory, now: float) -> Action:
    fit = preflight.check(check.targets, inventory.gpus)
    if fit.fits and known.entry_bytes is None:
        return _pull_or_retry(wanted, known, check.digest, now)
    return _write_if_changed(known, verdict_pointer(wanted, check, fit, inventory, known.entry_bytes))


def _after_refusal(
    wanted: WantedCache, known: Observed, hold: PullHold, inventory: Inventory, *, serve_revoked: bool
) -> Action:
    if not (serve_revoked and _may_stay_served(known, wanted, hold.digest, inventory)):
        return _write_if_changed(known, make_pointer(wanted, "", CacheState.FAILED, hold.reason, hold.message))
    if inventory.unreadable:
        return _write_if_changed(known, _pending_gpus(wanted, hold.digest, inventory))
    return _write_if_changed(
        known, _served_pointer(wanted, known, inventory, serve_revoked_message(hold.reason, hold.message))
    )


def _pending_gpus(wanted: WantedCache, digest: str, inventory: Inventory) -> Pointer:
    message = f"waiting until the GPUs of this node can be read: {'; '.join(inventory.errors)}"
    return make_pointer(wanted, digest, CacheState.PENDING, Reason.GPU_LOST, message)


def _may_stay_served(known: Observed, wanted: WantedCache, digest: str, inventory: Inventory) -> bool:
    """Return whether what is served may stay: not on GPUs that it does not fit any more."""
    if not is_served(known, wanted, digest) or known.check is None:
        return False
    return inventory.unreadable or preflight.check(known.check.targets, inventory.gpus).fits


def _served_pointer(wanted: WantedCache, known: Observed, inventory: Inventory, message: str | None = None) -> Pointer:
    """Return the Ready pointer of what stays; without a message it says what it said."""
    assert known.check is not None  # noqa: S101 -- what is served has one
    assert known.pointer is not None  # noqa: S101 -- and this one
    fit = preflight.check(known.check.targets, inventory.gpus)
    ready = verdict_pointer(wanted, known.check, fit, inventory, known.entry_bytes)
    if message is None:
        message = known.pointer.message if _is_ready(known.pointer, wanted) else ready.message
    return replace(ready, message=message)


def _pull_or_retry(wanted: WantedCache, known: Observed, digest: str, now: float, *, serving: bool = False) -> Action:
    attempt = known.attempt
    waits = attempt is not None and attempt.wanted == wanted and now < attempt.next_try
    # A pause longer than any of ours means that the clock was set back.
    if attempt is not None and waits and attempt.next_try - now <= LONGEST_PERMANENT_RETRY_SECONDS * 1.2:
        return RetryAt(attempt.next_try)
    return StartPull(digest, serving)


def _write_if_changed(known: Observed, pointer: Pointer) -> Action:
    return NoOp() if is_unchanged(known.pointer, pointer) else WritePointer(pointer)


def _is_ready(pointer: Pointer | None, wanted: WantedCache) -> bool:
    if pointer is None or pointer.state is not CacheState.READY:
        return False
    return (pointer.image, pointer.uid) == (wanted.image, wanted.uid)
