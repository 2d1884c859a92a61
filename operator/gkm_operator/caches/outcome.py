"""What came out of resolving and verifying an image, as the condition Verified says it. Pure but for `look`'s calls."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gkm.api.caches import Cache
from gkm.api.errors import GKMError, Reason
from gkm.api.meta import FALSE, TRUE, UNKNOWN
from gkm.api.signers import Signer
from gkm.images.signatures.verify import Verdict

from gkm_operator.caches.age import NO_AGE, Age, merged, older
from gkm_operator.images import NO_CLAIMS, UNREADABLE, Claims, Images


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer for one image at one time.

    `digest` is None while it could not be resolved. `settled` is False when time can change the answer: the registry
    comes back, the signature is added. `sure` is False when nobody could say: what is known already is worth more.
    """

    image: str
    digest: str | None
    status: str
    reason: Reason
    message: str
    size_bytes: int = 0
    settled: bool = True
    sure: bool = True
    waits: str = ""
    """What is waited for, where that is another thing than `reason` and `message` say."""
    signers: tuple[Signer, ...] = ()
    """Whose signatures let the digest through."""
    age: Age = NO_AGE


@dataclass(frozen=True, slots=True)
class Standing:
    """The digest that a cache stands for until now, who let it through, and how old it is."""

    digest: str
    signers: Sequence[Signer] = ()
    age: Age = NO_AGE


def check_image(images: Images, cache: Cache, stands: Standing | None) -> Outcome:
    """Return the outcome for the image of a cache; `stands` is what it stands for until now.

    Where the registry does not say, policies that name its signers no more take it back. Pinned keeps it for good.
    Track asks what the tag names now, and leaves it only for what is let through and not older. An
    image that the configuration forbids is no reason to connect to anything, nor to read a Secret.
    """
    outcome = _look(images, cache, stands)
    if stands is None or outcome.digest != stands.digest:
        return outcome
    return replace(outcome, age=merged(outcome.age, stands.age))


def _look(images: Images, cache: Cache, stands: Standing | None) -> Outcome:
    image, namespace = cache.spec.image, cache.metadata.namespace or None
    standing = stands.digest if stands is not None else None
    try:
        images.check_allowed(image, namespace)
        secrets = [reference.name for reference in cache.spec.image_pull_secrets]
        opened = images.with_pull_secrets(image, namespace, secrets)
    except GKMError as error:
        outcome = error_outcome(image, standing, error)
        return outcome if stands is None or outcome.sure else _unless_revoked(images, outcome, stands, namespace)
    if stands is not None and not cache.spec.update_policy.tracks:
        return _rechecked_outcome(opened, image, stands, namespace)
    try:
        named = opened.resolve(image)
    except GKMError as error:
        new = error_outcome(image, None, error)
    else:
        new = _verified_outcome(opened, image, named, namespace)
    if stands is None or new.digest == standing:
        return new
    if new.status == TRUE and new.sure:
        why = "" if cache.spec.update_policy.allow_rollback else older(new.age, stands.age)
        if not why:
            return new
        hint = "set updatePolicy.allowRollback to follow it"
        # An image whose age time alone keeps us from reading may be newer: then nobody can say yet.
        status, sure = (FALSE, True) if new.age.readable or new.settled else (UNKNOWN, False)
        new = replace(new, status=status, sure=sure, reason=Reason.UPDATE_REFUSED, message=f"{why}; {hint}")
    return pinned_outcome(_rechecked_outcome(opened, image, stands, namespace), new)


def pinned_outcome(old: Outcome, new: Outcome) -> Outcome:
    """Return the outcome of a digest that is not left for what the tag names now: that is refused, or nobody can say.

    The old one was verified in the same look: an update that is refused saves nothing that is refused itself.
    """
    if not new.sure:
        # Nor is what was said of the tag before taken back: nobody knows what it names.
        sure = old.sure and old.status != TRUE
        return replace(old, settled=False, sure=sure, waits=f"{new.reason}: {new.message}")
    if old.status != TRUE or not old.sure:
        return old
    names = f"the tag names {new.digest} now, which is refused" if new.digest else "the tag names nothing now"
    message = f"{names}: {new.message}; stays on {old.digest}"
    return replace(old, reason=Reason.UPDATE_REFUSED, message=message)


def verdict_outcome(
    image: str, digest: str, verdict: Verdict, claims: Claims = NO_CLAIMS, *, sized: bool = True
) -> Outcome:
    """Return the outcome of a verification that came to a verdict.

    What the mode allows without a good signature is True by NotRequired: True is what lets agents pull, and the
    message says what is missing. Where nothing is required, time changes nothing.
    """
    if verdict.verified is True:
        age = Age(claims.created, verdict.signed, readable=claims.readable)
        good = Outcome(image, digest, TRUE, verdict.reason, verdict.message, claims.size_bytes, settled=sized)
        return replace(good, signers=verdict.signers, age=age)
    sure = verdict.verified is not None or verdict.reason is Reason.NOT_REQUIRED
    if verdict.allowed:
        required, settled = Reason.NOT_REQUIRED, sized and sure
        passed = Outcome(image, digest, TRUE, required, verdict.message, claims.size_bytes, settled=settled, sure=sure)
        return replace(passed, age=Age(claims.created, readable=claims.readable))
    status = FALSE if sure else UNKNOWN
    return Outcome(image, digest, status, verdict.reason, verdict.message, settled=False, sure=sure)


def error_outcome(image: str, digest: str | None, error: GKMError) -> Outcome:
    """Return the outcome when the registry or the image made it impossible."""
    sure = not (error.transient or error.reason is Reason.UNAUTHORIZED)
    return Outcome(image, digest, FALSE if sure else UNKNOWN, error.reason, str(error), settled=False, sure=sure)


def _verified_outcome(images: Images, image: str, digest: str, namespace: str | None) -> Outcome:
    try:
        verdict = images.verify(image, digest, namespace)
        claims, sized = _claims(images, image, digest) if verdict.allowed else (NO_CLAIMS, True)
    except GKMError as error:
        return error_outcome(image, digest, error)
    return verdict_outcome(image, digest, verdict, claims, sized=sized)


def _rechecked_outcome(images: Images, image: str, stands: Standing, namespace: str | None) -> Outcome:
    """Return the outcome for a digest that stands already.

    An image that has gone from its registry takes its signatures with it. That is housekeeping, no revocation: nobody
    can say any more, and nodes that have it need nobody to. Nor can who is not told whether it has gone.
    """
    outcome = _verified_outcome(images, image, stands.digest, namespace)
    if outcome.status == FALSE:
        outcome = _there(images, image, stands.digest, outcome)
    return outcome if outcome.sure else _unless_revoked(images, outcome, stands, namespace)


def _there(images: Images, image: str, digest: str, outcome: Outcome) -> Outcome:
    try:
        images.size(image, digest)
    except GKMError as error:
        if error.reason is Reason.NOT_FOUND:
            why = f"{digest} has gone from its registry"
            return Outcome(image, digest, UNKNOWN, Reason.NOT_FOUND, why, settled=False, sure=False)
        asked = error_outcome(image, digest, error)
        return outcome if asked.sure else asked
    return outcome


def _unless_revoked(images: Images, outcome: Outcome, stands: Standing, namespace: str | None) -> Outcome:
    """Return the outcome by which nobody could say, or the refusal that needs no registry.

    Nobody can take a revoked key's signature for good again by keeping the registry from answering.
    """
    try:
        refused = images.revoked(outcome.image, stands.digest, namespace, stands.signers)
    except GKMError:
        return outcome
    return outcome if refused is None else verdict_outcome(outcome.image, stands.digest, refused, sized=False)


def _claims(images: Images, image: str, digest: str) -> tuple[Claims, bool]:
    """Return the claims, and whether asking again is pointless. That it is no cache image is for the agents to say."""
    try:
        return images.claims(image, digest), True
    except GKMError as error:
        return UNREADABLE, not error.transient
