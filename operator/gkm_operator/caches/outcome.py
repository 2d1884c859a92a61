"""What came out of resolving and verifying an image, as the condition Verified says it. Pure but for `look`'s calls."""

from dataclasses import dataclass

from gkm.api.caches import Cache
from gkm.api.errors import GKMError, Reason
from gkm.images.signatures.verify import Verdict

from gkm_operator.images import Images

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer for one image at one time.

    `digest` is None while it could not be resolved. `settled` is False when time can change the answer: the registry
    comes back, the signature is added.
    """

    image: str
    digest: str | None
    status: str
    reason: Reason
    message: str
    size_bytes: int = 0
    settled: bool = True


def look(images: Images, cache: Cache, pinned: str | None) -> Outcome:
    """Return the outcome for the image of a cache; `pinned` is what it was resolved to before, for good."""
    digest, image, namespace = pinned, cache.spec.image, cache.metadata.namespace or None
    try:
        opened = images.opened_for(image, namespace, [reference.name for reference in cache.spec.image_pull_secrets])
        digest = pinned or opened.resolve(image)
        verdict = opened.verify(image, digest, namespace)
        size_bytes, sized = _size(opened, image, digest) if verdict.allowed else (0, True)
    except GKMError as error:
        return of_error(image, digest, error)
    return of_verdict(image, digest, verdict, size_bytes, sized=sized)


def of_verdict(image: str, digest: str, verdict: Verdict, size_bytes: int, *, sized: bool = True) -> Outcome:
    """Return the outcome of a verification that came to a verdict.

    What the mode allows without a good signature is True by NotRequired: True is what lets agents pull, and the
    message says what is missing. Where nothing is required, time changes nothing.
    """
    if verdict.verified is True:
        return Outcome(image, digest, TRUE, verdict.reason, verdict.message, size_bytes, settled=sized)
    if verdict.allowed:
        settled = sized and (verdict.verified is not None or verdict.reason is Reason.NOT_REQUIRED)
        return Outcome(image, digest, TRUE, Reason.NOT_REQUIRED, verdict.message, size_bytes, settled=settled)
    status = UNKNOWN if verdict.verified is None else FALSE
    return Outcome(image, digest, status, verdict.reason, verdict.message, settled=False)


def of_error(image: str, digest: str | None, error: GKMError) -> Outcome:
    """Return the outcome when the registry or the image made it impossible."""
    unknown = error.transient or error.reason is Reason.UNAUTHORIZED
    return Outcome(image, digest, UNKNOWN if unknown else FALSE, error.reason, str(error), settled=False)


def _size(images: Images, image: str, digest: str) -> tuple[int, bool]:
    """Return the size, and whether asking again is pointless. That it is no cache image is for the agents to say."""
    try:
        return images.size(image, digest), True
    except GKMError as error:
        return 0, not error.transient
