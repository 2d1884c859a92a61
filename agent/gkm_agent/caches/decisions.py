"""Decide the next action for one cache from its wanted and observed state. Pure.

docs/design/node-state.md has the states. An action that needs no registry writes a pointer; an action that needs the
registry starts a pull.
"""

from dataclasses import dataclass, replace

from gkm.api.errors import Reason
from gkm.api.signers import Signer
from gkm.gpus import preflight
from gkm.gpus.preflight import Preflight
from gkm.gpus.values import Inventory
from gkm.hoststate.pacing import Backoff
from gkm.hoststate.pointers import CacheState, Pointer

from gkm_agent.caches.approvals import Approval
from gkm_agent.caches.model import Attempt, PullHold, WantedCache

TRANSIENT_BACKOFF = Backoff(5.0, 600.0)
PERMANENT_BACKOFF = Backoff(60.0, 1800.0)
"""Pauses in seconds between pulls after a permanent failure: a user can push or sign the image without changing the
cache."""
SPREAD = 0.5
"""The largest random addition to a pause, as a share of it: all nodes see a new cache within a second, and must not
retry together."""
LONGEST_PAUSE_SECONDS = PERMANENT_BACKOFF.cap * (1.0 + SPREAD)
"""The longest pause with its random addition; it is longer than any pause that a registry may request."""
MAX_MESSAGE = 1024


@dataclass(frozen=True, slots=True)
class Observed:
    """The state of a cache on this node; `entry_bytes` is None if the wanted entry is missing or damaged."""

    pointer: Pointer | None = None
    check: Approval | None = None
    entry_bytes: int | None = None
    attempt: Attempt | None = None


@dataclass(frozen=True, slots=True)
class WritePointer:
    """Action: write this pointer."""

    pointer: Pointer


@dataclass(frozen=True, slots=True)
class StartPull:
    """Action: start a pull, which verifies, describes and fetches the image.

    `digest` is "" if the agent must resolve the reference first. `serving`: the cache is Ready and stays Ready during
    verification, and also if verification refuses the image.
    """

    digest: str
    serving: bool = False


@dataclass(frozen=True, slots=True)
class RetryAt:
    """Action: start a pull, but not before `until` (seconds since the epoch)."""

    until: float


Action = WritePointer | StartPull | RetryAt


def decide(
    wanted: WantedCache,
    observed: Observed,
    inventory: Inventory,
    policy: str,
    now: float,
    *,
    serve_revoked: bool = False,
) -> Action | None:
    """Return the next action for a cache, None if its pointer is correct.

    `serve_revoked`: pods continue to get an image that verification approved earlier and refuses now (whenRevoked:
    keep).
    """
    digest = wanted_digest(wanted, observed.pointer, observed.check)
    hold = wanted.hold
    if hold is not None and hold.final:
        return _after_refusal(wanted, observed, hold, inventory, serve_revoked=serve_revoked)
    if hold is not None and not _has_approved(observed, wanted, digest, policy):
        return _write_if_changed(observed, make_pointer(wanted, "", CacheState.PENDING, hold.reason, hold.message))
    if inventory.unreadable:
        return _write_if_changed(observed, _pending_gpus(wanted, digest, inventory))
    if not is_current(observed.check, wanted, digest, policy):
        if not (serve_revoked and _may_stay_served(observed, wanted, digest, inventory)):
            return _pull_or_retry(wanted, observed, digest, now)
        write = _write_if_changed(observed, _served_pointer(wanted, observed, inventory))
        return write or _pull_or_retry(wanted, observed, digest, now, serving=True)
    assert observed.check is not None  # noqa: S101 -- a current check exists
    return _after_preflight(wanted, observed, observed.check, inventory, now)


def is_foreign(wanted: WantedCache, pointer: Pointer | None) -> bool:
    """Return whether a pointer was written for another object than `wanted`, or for an unknown object."""
    return pointer is not None and pointer.uid != wanted.uid


def unproven_pointer(wanted: WantedCache) -> Pointer:
    """Return a Pending pointer for a recreated cache.

    The deleted object's access to the image proves no access of the new one.
    """
    message = "this object has not proven its access to the image on this node: the agent asks the registry"
    return make_pointer(wanted, wanted.digest or "", CacheState.PENDING, message=message)


def wanted_digest(wanted: WantedCache, pointer: Pointer | None, check: Approval | None) -> str:
    """Return the digest that this node should have, "" if the agent must ask the registry.

    Without a controller the agent resolves a tag until verification approves a digest, and then uses this digest.
    """
    if wanted.digest is not None:
        return wanted.digest
    if check is not None and (check.image, check.uid) == (wanted.image, wanted.uid):
        return check.digest
    return pointer.digest if pointer is not None and has_state(pointer, wanted, CacheState.READY) else ""


def is_current(check: Approval | None, wanted: WantedCache, digest: str, policy: str) -> bool:
    """Return whether the check approves this image and digest for this cache object under the current policies."""
    if check is None or check.uid != wanted.uid:
        return False
    return (check.image, check.digest, check.policy) == (wanted.image, digest, policy)


def signers(check: Approval | None, wanted: WantedCache, digest: str) -> tuple[Signer, ...]:
    """Return the signers in the check of a cache; empty if the check is for another image or digest."""
    same = check is not None and (check.image, check.digest) == (wanted.image, digest)
    return check.signers if check is not None and same else ()


def is_served(observed: Observed, wanted: WantedCache, digest: str) -> bool:
    """Return whether pods get this digest of the cache now, or got it until a GPU was lost.

    Verification approved the image once; this function does not say that it still does.
    """
    pointer, check = observed.pointer, observed.check
    if not digest or pointer is None or check is None or observed.entry_bytes is None:
        return False
    if not pointer.uid == check.uid == wanted.uid:
        return False
    same_image = (pointer.image, pointer.digest) == (check.image, check.digest) == (wanted.image, digest)
    lost = (pointer.state, pointer.reason) == (CacheState.PENDING, Reason.GPU_LOST)
    return same_image and (pointer.state is CacheState.READY or lost)


def has_state(pointer: Pointer | None, wanted: WantedCache, state: CacheState) -> bool:
    """Return whether a pointer has `state` and belongs to this image and this cache object."""
    return pointer is not None and (pointer.state, pointer.image, pointer.uid) == (state, wanted.image, wanted.uid)


def serve_revoked_message(reason: Reason | str, message: str) -> str:
    """Return the message of a pointer that stays Ready although verification does not approve the image now."""
    return bounded(f"kept by verification.whenRevoked, not delivered to other nodes ({reason}): {message}")


def make_pointer(
    wanted: WantedCache, digest: str, state: CacheState, reason: Reason | str = "", message: str = ""
) -> Pointer:
    """Return a pointer for a wanted cache in the given state."""
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
    wanted: WantedCache, check: Approval, fit: Preflight, inventory: Inventory, entry_bytes: int | None
) -> Pointer:
    """Return the pointer after the preflight check: Incompatible if no GPU fits, otherwise Ready.

    The store must have the entry of `digest`.
    """
    if not fit.fits:
        message = fit.message if fit.reason is Reason.NO_GPU else f"no GPU of this node fits: {fit.message}"
        pointer = make_pointer(wanted, check.digest, CacheState.INCOMPATIBLE, fit.reason or "", message)
    else:
        pointer = make_pointer(wanted, check.digest, CacheState.READY, message=check.notice)
        pointer = replace(pointer, progress=100)
    return replace(pointer, size_bytes=entry_bytes or 0, driver_version=inventory.driver_version)


def next_attempt(
    wanted: WantedCache,
    previous: Attempt | None,
    *,
    transient: bool,
    now: float,
    jitter: float,
    retry_after: float = 0.0,
) -> Attempt:
    """Return the attempt with its next retry after a failure; `jitter` in [0, 1) spreads the nodes over time.

    A registry that is overloaded requests the same pause, `retry_after`, from every node: no node retries before it,
    and they spread over half of it, or over the pause of their backoff where that is longer.
    """
    count = previous.count + 1 if previous is not None and previous.wanted == wanted else 1
    pause = (TRANSIENT_BACKOFF if transient else PERMANENT_BACKOFF).longest_pause(count)
    ours = pause * (1.0 - SPREAD + 2.0 * SPREAD * jitter)
    return Attempt(wanted, count, now + max(ours, retry_after * (1.0 + SPREAD * jitter)))


def bounded(message: str) -> str:
    """Return a message as one line of at most MAX_MESSAGE characters."""
    line = " ".join(message.split())
    return line if len(line) <= MAX_MESSAGE else line[: MAX_MESSAGE - 1] + "…"


def is_unchanged(before: Pointer | None, pointer: Pointer) -> bool:
    """Return whether two pointers are equal except for their times."""
    return before is not None and replace(before, updated=pointer.updated) == pointer


def _has_approved(observed: Observed, wanted: WantedCache, digest: str, policy: str) -> bool:
    """Return whether the node has an approved image, which only its GPUs may keep from pods."""
    pointer = observed.pointer
    if pointer is None:
        return False
    by_gpus = pointer.state is CacheState.INCOMPATIBLE or pointer.reason == Reason.GPU_LOST
    is_here = pointer.digest == digest and observed.entry_bytes is not None
    is_waiting = by_gpus and is_here and is_current(observed.check, wanted, digest, policy)
    return is_waiting or has_state(pointer, wanted, CacheState.READY)


def _after_preflight(
    wanted: WantedCache, observed: Observed, check: Approval, inventory: Inventory, now: float
) -> Action | None:
    fit = preflight.check(check.targets, inventory.gpus)
    if fit.fits and observed.entry_bytes is None:
        return _pull_or_retry(wanted, observed, check.digest, now)
    return _write_if_changed(observed, verdict_pointer(wanted, check, fit, inventory, observed.entry_bytes))


def _after_refusal(
    wanted: WantedCache, observed: Observed, hold: PullHold, inventory: Inventory, *, serve_revoked: bool
) -> WritePointer | None:
    if not (serve_revoked and _may_stay_served(observed, wanted, hold.digest, inventory)):
        return _write_if_changed(observed, make_pointer(wanted, "", CacheState.FAILED, hold.reason, hold.message))
    if inventory.unreadable:
        return _write_if_changed(observed, _pending_gpus(wanted, hold.digest, inventory))
    message = serve_revoked_message(hold.reason, hold.message)
    return _write_if_changed(observed, _served_pointer(wanted, observed, inventory, message))


def _pending_gpus(wanted: WantedCache, digest: str, inventory: Inventory) -> Pointer:
    message = f"waiting until the GPUs of this node are readable: {'; '.join(inventory.errors)}"
    return make_pointer(wanted, digest, CacheState.PENDING, Reason.GPU_LOST, message)


def _may_stay_served(observed: Observed, wanted: WantedCache, digest: str, inventory: Inventory) -> bool:
    """Return whether a served cache may stay served: not on GPUs that it no longer fits."""
    if not is_served(observed, wanted, digest) or observed.check is None:
        return False
    return inventory.unreadable or preflight.check(observed.check.targets, inventory.gpus).fits


def _served_pointer(
    wanted: WantedCache, observed: Observed, inventory: Inventory, message: str | None = None
) -> Pointer:
    """Return the Ready pointer of a cache that stays served; without a message it keeps the current one."""
    assert observed.check is not None  # noqa: S101 -- a served cache has a check
    assert observed.pointer is not None  # noqa: S101 -- and a pointer
    fit = preflight.check(observed.check.targets, inventory.gpus)
    ready = verdict_pointer(wanted, observed.check, fit, inventory, observed.entry_bytes)
    if message is None:
        was_ready = has_state(observed.pointer, wanted, CacheState.READY)
        message = observed.pointer.message if was_ready else ready.message
    return replace(ready, message=message)


def _pull_or_retry(
    wanted: WantedCache, observed: Observed, digest: str, now: float, *, serving: bool = False
) -> StartPull | RetryAt:
    attempt = observed.attempt
    waits = attempt is not None and attempt.wanted == wanted and now < attempt.next_try
    # A pause longer than the longest possible one means that the clock was set back.
    if attempt is not None and waits and attempt.next_try - now <= LONGEST_PAUSE_SECONDS:
        return RetryAt(attempt.next_try)
    return StartPull(digest, serving)


def _write_if_changed(observed: Observed, pointer: Pointer) -> WritePointer | None:
    return None if is_unchanged(observed.pointer, pointer) else WritePointer(pointer)
