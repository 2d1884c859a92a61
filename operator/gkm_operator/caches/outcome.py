"""The result of resolving and verifying the image of a cache, in the terms of the condition Verified.

`check_image` is the only function that contacts a registry; all others are pure. It keeps the present digest unless the
tag names another one that is accepted and not older, and takes an acceptance back without a registry when the policies
no longer name a signer.

A signature does not expire: with push rights alone, an attacker can push an old signed image under a tag again. The
order of two images follows from the creation time that the image states (its digest covers it), or else from the time
of the first signature. An image without both times is never older.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from gkm.api.caches import Cache, CacheStatus, ImageVolume
from gkm.api.errors import GKMError, Reason
from gkm.api.meta import FALSE, TRUE, UNKNOWN, timestamp
from gkm.api.signers import Signer
from gkm.api.watched_caches import oversized
from gkm.images.signatures.verify import Verdict

from gkm_operator.images import NO_CLAIMS, UNREADABLE, ImageClaims, Images


@dataclass(frozen=True, slots=True)
class Age:
    """When an image was created, as it states itself, and when it was first signed, as a log or timestamp confirms.

    The stated time is unknown when the image is not `readable`.
    """

    created: datetime | None = None
    signed: datetime | None = None
    readable: bool = True


NO_AGE = Age()


def age_of_status(status: CacheStatus) -> Age:
    """Return the age of the image in a cache's status.resolvedDigest, from its status."""
    return Age(_time_of(status.image_created), _time_of(status.image_signed))


def written_time(time: datetime | None) -> str | None:
    """Return a time as text for a status field; None for None."""
    return None if time is None else timestamp(time)


def merged_age(new: Age, known: Age) -> Age:
    """Combine two readings of the age of one image: the known creation time stays, and the earliest signing time."""
    signed = [time for time in (new.signed, known.signed) if time is not None]
    return Age(new.created or known.created, min(signed, default=None))


def why_older(new: Age, old: Age) -> str:
    """Return why the image `new` is older than the image `old`, for a sentence; "" if it is not or cannot be known.

    The first kind of time that both have and that differs decides. An image that cannot be read counts as older: a
    registry must not influence the order by withholding data, and an image that is no cache replaces none.
    """
    if not new.readable:
        created = f", and the present one was created {timestamp(old.created)}" if old.created is not None else ""
        return f"it cannot be read as a cache{created}"
    for done, mine, other in (("created", new.created, old.created), ("signed", new.signed, old.signed)):
        if mine is None or other is None or mine == other:
            continue
        return f"it was {done} {timestamp(mine)}, the present one {timestamp(other)}" if mine < other else ""
    return ""


def _time_of(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one check of a cache's image, in the terms of the condition Verified.

    `digest` is None if the image could not be resolved. `settled` is False when time can change the result: the
    registry recovers, a signature is added. `sure` is False when the check was inconclusive: then an earlier result
    takes precedence.
    """

    image: str
    digest: str | None
    status: str
    reason: Reason
    message: str
    size_bytes: int = 0
    settled: bool = True
    sure: bool = True
    waiting_for: str = ""
    """Why a retry is scheduled, if that differs from `reason` and `message`."""
    signers: tuple[Signer, ...] = ()
    """The signers whose signatures satisfied the policies."""
    age: Age = NO_AGE
    runtime: str = ""
    """The program that wrote the cache; "" while it is unknown."""
    volume: ImageVolume | None = None
    """The image as a volume of pods; None while unknown, and for an image that was built for no mount path."""
    retry_after: float = 0.0
    """The pause in seconds that the registry requested before a retry."""


@dataclass(frozen=True, slots=True)
class CurrentImage:
    """The digest that a cache has used until now, with its signers and age."""

    digest: str
    signers: Sequence[Signer] = ()
    age: Age = NO_AGE


def check_image(images: Images, cache: Cache, current: CurrentImage | None) -> Outcome:
    """Check the image of a cache against the registry and the policies; `current` is the image it has used until now.

    If the registry does not answer, policies that no longer name its signers still refuse the current digest. A pinned
    cache never changes its digest. A tracking cache resolves its tag each time, and changes only to an image that is
    accepted and not older. For an image that the configuration forbids, the check makes no connection and reads no
    Secret.
    """
    outcome = _check(images, cache, current)
    if current is None or outcome.digest != current.digest:
        return outcome
    return replace(outcome, age=merged_age(outcome.age, current.age))


def _check(images: Images, cache: Cache, current: CurrentImage | None) -> Outcome:
    image, namespace = cache.spec.image, cache.metadata.namespace or None
    current_digest = current.digest if current is not None else None
    try:
        _check_size(cache)
        images.check_allowed(image, namespace)
        secrets = [reference.name for reference in cache.spec.image_pull_secrets]
        opened = images.with_pull_secrets(image, namespace, secrets)
    except GKMError as error:
        outcome = error_outcome(image, current_digest, error)
        return outcome if current is None or outcome.sure else _unless_revoked(images, outcome, current, namespace)
    if current is not None and not cache.spec.update_policy.tracks:
        return _rechecked_outcome(opened, image, current, namespace)
    try:
        named = opened.resolve(image)
    except GKMError as error:
        new = error_outcome(image, None, error)
    else:
        new = _unless_absent(opened, image, named, _verified_outcome(opened, image, named, namespace))
    if current is None or new.digest == current_digest:
        return new
    if new.status == TRUE and new.sure:
        reason = "" if cache.spec.update_policy.allow_rollback else why_older(new.age, current.age)
        if not reason:
            return new
        older = "set updatePolicy.allowRollback to follow it"
        hint = older if new.age.readable else "push a cache image under the tag"
        # The image cannot be read for a passing reason and may be newer: then the result is inconclusive.
        status, sure = (FALSE, True) if new.age.readable or new.settled else (UNKNOWN, False)
        new = replace(new, status=status, sure=sure, reason=Reason.UPDATE_REFUSED, message=f"{reason}; {hint}")
    return pinned_outcome(_rechecked_outcome(opened, image, current, namespace), new)


def _check_size(cache: Cache) -> None:
    """Check that the spec is held.

    Raises:
        GKMError: the object is too large, so that its Secrets and its nodes are unknown.
    """
    if why := oversized(cache):
        raise GKMError(Reason.TOO_LARGE, f"the object is too large: {why}", "remove entries of this field")


def pinned_outcome(old: Outcome, new: Outcome) -> Outcome:
    """Return the outcome for a cache's current digest, if the image that its tag names now is refused or unknown.

    The same check has verified the old digest: a refused update does not protect a digest that is refused itself.
    """
    if not new.sure:
        # An earlier statement about the tag stays as well: what the tag names is unknown.
        sure = old.sure and old.status != TRUE
        waiting_for, retry_after = f"{new.reason}: {new.message}", max(old.retry_after, new.retry_after)
        return replace(old, settled=False, sure=sure, waiting_for=waiting_for, retry_after=retry_after)
    if old.status != TRUE or not old.sure:
        return old
    names = f"the tag names {new.digest} now, which is refused" if new.digest else "the tag names no image now"
    message = f"{names}: {new.message}; stays on {old.digest}"
    return replace(old, reason=Reason.UPDATE_REFUSED, message=message)


def verdict_outcome(
    image: str, digest: str, verdict: Verdict, claims: ImageClaims = NO_CLAIMS, *, sized: bool = True
) -> Outcome:
    """Return the outcome for an image that verification has judged.

    An image that the mode admits without a valid signature gets True with the reason NotRequired: agents pull only on
    True, and the message states what is missing. When no signature is required, time has no effect.
    """
    if verdict.verified is True:
        age = Age(claims.created, verdict.signed, readable=claims.readable)
        good = Outcome(image, digest, TRUE, verdict.reason, verdict.message, claims.size_bytes, settled=sized)
        return replace(good, signers=verdict.signers, age=age, runtime=claims.runtime, volume=claims.volume)
    sure = verdict.verified is not None or verdict.reason is Reason.NOT_REQUIRED
    if verdict.allowed:
        required, settled = Reason.NOT_REQUIRED, sized and sure
        passed = Outcome(image, digest, TRUE, required, verdict.message, claims.size_bytes, settled=settled, sure=sure)
        age = Age(claims.created, readable=claims.readable)
        known = replace(passed, age=age, runtime=claims.runtime, volume=claims.volume)
        return replace(known, retry_after=verdict.retry_after)
    status = FALSE if sure else UNKNOWN
    refused = Outcome(image, digest, status, verdict.reason, verdict.message, settled=False, sure=sure)
    return replace(refused, retry_after=verdict.retry_after)


def error_outcome(image: str, digest: str | None, error: GKMError) -> Outcome:
    """Return the outcome for a check that failed with an error."""
    sure = not error.inconclusive
    status, retry_after = FALSE if sure else UNKNOWN, error.retry_after
    return Outcome(image, digest, status, error.reason, str(error), settled=False, sure=sure, retry_after=retry_after)


def _verified_outcome(images: Images, image: str, digest: str, namespace: str | None) -> Outcome:
    try:
        verdict = images.verify(image, digest, namespace)
        claims, unread = _claims(images, image, digest) if verdict.allowed else (NO_CLAIMS, None)
    except GKMError as error:
        return error_outcome(image, digest, error)
    outcome = verdict_outcome(image, digest, verdict, claims, sized=unread is None)
    return outcome if unread is None else replace(outcome, retry_after=max(outcome.retry_after, unread.retry_after))


def _rechecked_outcome(images: Images, image: str, current: CurrentImage, namespace: str | None) -> Outcome:
    """Return the outcome for the present digest.

    An image that was deleted from its registry takes its signatures with it. That is housekeeping, not revocation: the
    result is inconclusive, and nodes that have the image need no result. The same holds when the registry hides whether
    it exists.
    """
    outcome = _verified_outcome(images, image, current.digest, namespace)
    if outcome.status == FALSE:
        outcome = _unless_missing(images, image, current.digest, outcome)
    return outcome if outcome.sure else _unless_revoked(images, outcome, current, namespace)


def _unless_absent(images: Images, image: str, digest: str, outcome: Outcome) -> Outcome:
    """Return an outcome, or NotFound if the image is named by a digest that its registry does not have.

    A digest is resolved without a request, and a registry has no signatures of an image that it does not have.
    """
    if outcome.reason is not Reason.SIGNATURE_MISSING or "@" not in image:
        return outcome
    try:
        images.claims(image, digest)
    except GKMError as error:
        if error.reason is Reason.NOT_FOUND:
            return error_outcome(image, digest, error)
    return outcome


def _unless_missing(images: Images, image: str, digest: str, outcome: Outcome) -> Outcome:
    try:
        images.without_mirrors().claims(image, digest)  # a mirror may still have an image that was deleted
    except GKMError as error:
        if error.reason is Reason.NOT_FOUND:
            reason = f"{digest} is no longer in its registry"
            return Outcome(image, digest, UNKNOWN, Reason.NOT_FOUND, reason, settled=False, sure=False)
        asked = error_outcome(image, digest, error)
        return outcome if asked.sure else asked
    return outcome


def _unless_revoked(images: Images, outcome: Outcome, current: CurrentImage, namespace: str | None) -> Outcome:
    """Return an inconclusive outcome, or a refusal that needs no registry.

    An attacker with a revoked key has no advantage from keeping the registry from answering.
    """
    try:
        refused = images.revoked(outcome.image, current.digest, namespace, current.signers)
    except GKMError:
        return outcome
    if refused is None:
        return outcome
    revoked = verdict_outcome(outcome.image, current.digest, refused, sized=False)
    return replace(revoked, retry_after=outcome.retry_after)


def _claims(images: Images, image: str, digest: str) -> tuple[ImageClaims, GKMError | None]:
    """Return the claims, and the error that a retry may pass. The agents report an image that is not a cache image."""
    try:
        return images.claims(image, digest), None
    except GKMError as error:
        return UNREADABLE, error if error.transient else None
