"""What to answer: pure functions of the request and of what is known of its image.

Only a definite failure is refused. What cannot be told now (the registry is away, slow, or closed to us) is admitted
with a warning: nothing is pulled before the controller has verified it (design/architecture.md, "The way of a cache").
"""

from gkm.api.errors import GKMError, Reason
from gkm.images.signatures.verify import Verdict

from gkm_operator.admission.review import ReviewRequest, ReviewResponse

ADMITTED = ReviewResponse(allowed=True)
_CHECKED_OPERATIONS = frozenset({"CREATE", "UPDATE"})

_REFUSED_ALWAYS = frozenset({Reason.INVALID_REFERENCE, Reason.NOT_ALLOWED})
"""Wrong whatever the signature policy says: no mode can make such a reference work."""


def decide_without_image(request: ReviewRequest) -> ReviewResponse | None:
    """Return the answer where the image need not be looked at, None where it must.

    An object that is being deleted must always pass, or its finalizers could never be removed; and an update that
    leaves the image alone must not fail because a tag has moved (prior-art/gkm-05: objects that could not be edited).
    """
    if request.operation not in _CHECKED_OPERATIONS or request.sub_resource:
        return ADMITTED
    if request.object is None:
        return ReviewResponse(allowed=False, message=f"{request.operation} without an object")
    if request.object.metadata.deletion_timestamp:
        return ADMITTED
    if request.old_object is not None and request.old_object.spec.image == request.object.spec.image:
        return ADMITTED
    return None


def decide_verdict(request: ReviewRequest, verdict: Verdict, mode: str) -> ReviewResponse:
    """Return the answer for an image that was looked at; `mode` is that of verification."""
    if verdict.verified is True or (verdict.allowed and verdict.reason is Reason.NOT_REQUIRED):
        return ADMITTED
    if verdict.allowed:
        return ReviewResponse(allowed=True, warnings=(f"{_image(request)}: {verdict.message}",))
    if verdict.verified is None:
        return _deferred(request, verdict.message, mode)
    return _refusal(request, verdict.reason, verdict.message)


def decide_error(request: ReviewRequest, error: GKMError, mode: str, *, private: bool = False) -> ReviewResponse:
    """Return the answer for an image that could not be looked at; `private`: the controllers have credentials."""
    if is_open(error, private=private):
        return _deferred(request, str(error), mode)
    if mode == "enforce" or error.reason in _REFUSED_ALWAYS:
        return _refusal(request, error.reason, str(error))
    return ReviewResponse(allowed=True, warnings=(f"{_image(request)}: {error}",))


def decide_delay(request: ReviewRequest, why: str, mode: str) -> ReviewResponse:
    """Return the answer when there was no time to find out."""
    return _deferred(request, why, mode)


def is_open(error: GKMError, *, private: bool) -> bool:
    """Return whether an error says nothing of the image.

    We ask as nobody: that we may not read what is private, or do not see it, refutes nothing. Registries hide it as if
    it were not there, and only the controllers have the credentials that the object or the configuration names.
    """
    return error.transient or error.reason is Reason.UNAUTHORIZED or (private and error.reason is Reason.NOT_FOUND)


def result(response: ReviewResponse, *, late: bool) -> str:
    """Return the word for an answer in `gkm_admission_seconds`; `late` when there was no time to find out."""
    if not response.allowed:
        return "refused"
    return "late" if late else "warned" if response.warnings else "admitted"


def _deferred(request: ReviewRequest, why: str, mode: str) -> ReviewResponse:
    # Other modes let it be pulled without a good signature, so nothing is promised there.
    said = "is not verified yet, and not pulled before it is" if mode == "enforce" else "was not looked at"
    return ReviewResponse(allowed=True, warnings=(f"{_image(request)} {said}: {why}",))


def _refusal(request: ReviewRequest, reason: Reason, message: str) -> ReviewResponse:
    return ReviewResponse(allowed=False, message=f"{_image(request)} is refused ({reason}): {message}")


def _image(request: ReviewRequest) -> str:
    return f"image {request.image[:200]}"
