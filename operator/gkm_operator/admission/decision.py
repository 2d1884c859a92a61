"""Decisions of the webhook: pure functions of the request and of the findings about its image.

Only a definite failure is refused. When the result is unknown (the registry does not answer, is slow, or denies access)
the webhook admits with a warning: nodes pull nothing before the controller has verified it (docs/design/verdicts.md).
"""

from gkm.api.errors import GKMError, Reason
from gkm.images.signatures.verify import Verdict

from gkm_operator.admission.review import ADMITTED, ReviewRequest, ReviewResponse

_CHECKED_OPERATIONS = frozenset({"CREATE", "UPDATE"})

_REFUSED_ALWAYS = frozenset({Reason.INVALID_REFERENCE, Reason.NOT_ALLOWED})
"""Refused in every mode: no signature policy makes such a reference work."""


def decide_without_image(request: ReviewRequest) -> ReviewResponse | None:
    """Return the response when the image need not be checked; None when it must be.

    The deletion of an object must always pass, or its finalizers could never be removed. An update that leaves the
    image unchanged must not fail because a tag has moved: the object could not be edited any more.
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
    """Return the response for a checked image; `mode` is that of verification."""
    if verdict.verified is True or (verdict.allowed and verdict.reason is Reason.NOT_REQUIRED):
        return ADMITTED
    if verdict.allowed:
        return ReviewResponse(allowed=True, warnings=(f"{_image(request)}: {verdict.message}",))
    if verdict.verified is None:
        return decide_unknown(request, verdict.message, mode)
    return _refusal(request, verdict.reason, verdict.message)


def decide_error(request: ReviewRequest, error: GKMError, mode: str, *, private: bool = False) -> ReviewResponse:
    """Return the response for an image whose check failed; `private`: the controllers have credentials for it."""
    if is_inconclusive(error, private=private):
        return decide_unknown(request, str(error), mode)
    if mode == "enforce" or error.reason in _REFUSED_ALWAYS:
        return _refusal(request, error.reason, str(error))
    return ReviewResponse(allowed=True, warnings=(f"{_image(request)}: {error}",))


def decide_unknown(request: ReviewRequest, reason: str, mode: str) -> ReviewResponse:
    """Return the response when the result of the check is unknown, also because it did not finish in time."""
    # In other modes nodes pull it without a valid signature, so the warning promises no verification.
    state = "is not verified yet, and not pulled before it is" if mode == "enforce" else "was not checked"
    return ReviewResponse(allowed=True, warnings=(f"{_image(request)} {state}: {reason}",))


def is_inconclusive(error: GKMError, *, private: bool) -> bool:
    """Return whether an error proves nothing about the image.

    The webhook reads registries anonymously, so a denied or hidden private image refutes nothing. Registries answer for
    it as if it did not exist, and only the controllers have the credentials that the object or the configuration names.
    """
    return error.transient or error.reason is Reason.UNAUTHORIZED or (private and error.reason is Reason.NOT_FOUND)


def result(response: ReviewResponse, *, late: bool) -> str:
    """Return the label `result` of `gkm_admission_seconds`; `late` means that the check did not finish in time."""
    if not response.allowed:
        return "refused"
    return "late" if late else "warned" if response.warnings else "admitted"


def _refusal(request: ReviewRequest, reason: Reason, message: str) -> ReviewResponse:
    return ReviewResponse(allowed=False, message=f"{_image(request)} is refused ({reason}): {message}")


def _image(request: ReviewRequest) -> str:
    return f"image {request.image[:200]}"
