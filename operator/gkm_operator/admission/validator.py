"""Reviews of caches: the check of an image within the time budget, and the decision about its result.

Only a definite failure is refused. When the result is unknown (the registry does not answer, is slow, or denies access)
the webhook admits with a warning: nodes do not pull before the controller has verified it (docs/reference/verdicts.md).
Positive verdicts are cached for some minutes, so that an image which many caches name is verified once.
"""

import logging
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from gkm.api.config import Registries
from gkm.api.errors import GKMError, Reason
from gkm.hoststate.logs import fields
from gkm.hoststate.lru import LRUCache
from gkm.images.reference import Reference
from gkm.images.registries.transport import unreachable
from gkm.images.signatures.verify import Verdict

from gkm_operator import metrics
from gkm_operator.admission import review
from gkm_operator.admission.review import ADMITTED, ReviewRequest, ReviewResponse, encode, parse, refused, warned
from gkm_operator.admission.singleflight import NotInTime, Overloaded, SingleFlight
from gkm_operator.images import ImageChecker, ImageClaims

_LOG = logging.getLogger(__name__)

BUDGET_SECONDS = 3.0
"""Seconds for checking an image, of the webhook's ten: the network and one retry of the API server need the others."""

THREADS = 16
"""Number of concurrent image checks; one registry or namespace gets a quarter at most."""

WAITING = 64
"""Limit of requests that wait for an image check; one registry or namespace gets half at most."""

_CHECKED_OPERATIONS = frozenset({"CREATE", "UPDATE"})

_REFUSED_ALWAYS = frozenset({Reason.INVALID_REFERENCE, Reason.NOT_ALLOWED})
"""Reasons that are refused in every mode: verification settings cannot make such a reference usable."""

CACHE_SECONDS = 300.0
"""Seconds for which a positive verdict is cached, even if a signature is revoked meanwhile; nodes do not rely on it."""

MAX_VERDICTS = 4096

_Key = tuple[str, str, str | None]


def review_cache(
    decide: Callable[[ReviewRequest], ReviewResponse],
    take: Callable[[], bytes | bytearray],
    decoded: Callable[[], object],
) -> bytes:
    """Return the AdmissionReview with the response to a request about a cache, as https.server.Reviewer describes."""
    request = parse(take())
    decoded()
    return encode(request.uid, decide(request))


class ImageValidator:
    """Decides about new caches by a check of their images. Thread-safe; without side effects: dry runs are harmless."""

    def __init__(
        self,
        images: ImageChecker,
        mode: str,
        registries: Registries | None = None,
        *,
        seconds: float = BUDGET_SECONDS,
        threads: int = THREADS,
        waiting: int = WAITING,
    ) -> None:
        self._images = images
        self._mode = mode
        self._registries = registries or Registries()
        self._single_flight: SingleFlight[Verdict] = SingleFlight(threads, seconds, waiting)

    def review(self, request: ReviewRequest) -> ReviewResponse:
        """Return the admission response for a cache; check its image within the time budget if that is necessary."""
        started = time.monotonic()
        is_late, cause = False, ""
        response = decide_without_image(request)
        if response is None:
            try:
                response = self._check_image(request)
            except NotInTime as error:
                # The same message as for a registry that refuses connections: users must not learn which of the two it
                # was.
                away = unreachable(Reference.parse(request.image).registry)
                response, is_late, cause = decide_unknown(request, str(away), self._mode), True, str(error)
            except Overloaded as error:
                response, is_late = decide_unknown(request, str(error), self._mode), True
        seconds = time.monotonic() - started
        result = review.result(response, late=is_late)
        # Its labels have fixed sets of values: `review` accepts no other kind.
        metrics.reviewed(request.kind.kind, result, seconds)
        _LOG.info(
            "cache admitted" if response.allowed else "cache refused",
            extra=fields(
                cache=request.cache,
                operation=request.operation,
                dryRun=request.dry_run or None,
                image=request.image or None,
                result=result,
                why=response.message or "; ".join(response.warnings) or None,
                cause=cause or None,
                seconds=round(seconds, 3),
            ),
        )
        return response

    def _check_image(self, request: ReviewRequest) -> ReviewResponse:
        private = False
        try:
            ref = Reference.parse(request.image)
            self._images.check_allowed(request.image, request.scope)
            private = self._private(request, ref)
            owners = (f"registry {ref.registry}", f"namespace {request.scope}" if request.scope else "cluster caches")
            verdict = self._single_flight.run(
                (ref, request.scope, private), owners, lambda: self._verdict(request.image, request.scope, private)
            )
        except GKMError as error:
            return decide_error(request, error, self._mode, private=private)
        return decide_verdict(request, verdict, self._mode)

    def _private(self, request: ReviewRequest, ref: Reference) -> bool:
        """Return whether the controllers have credentials for the image that the webhook has not."""
        if request.object is not None and request.object.spec.names_secrets:
            return True
        return any(self._registries.host(host).credentials_secret for host in self._registries.sources(ref.registry))

    def _verdict(self, image: str, scope: str | None, private: bool) -> Verdict:  # noqa: FBT001 -- part of the key
        digest = self._images.resolve(image)
        verdict = self._images.verify(image, digest, scope)
        if private and verdict.reason is Reason.SIGNATURE_MISSING:
            # Resolving a digest contacts no registry, so this is the first request that shows whether we may see the
            # image.
            try:
                self._images.claims(image, digest)
            except GKMError as error:
                if is_inconclusive(error, private=private):
                    raise
        return verdict


def decide_without_image(request: ReviewRequest) -> ReviewResponse | None:
    """Return the response to a request whose image need not be checked; None if it must be checked.

    The deletion of an object must always pass, or its finalizers could never be removed. An update that leaves the
    image unchanged must not fail because a tag has moved: the object could not be edited any more.
    """
    if request.operation not in _CHECKED_OPERATIONS or request.sub_resource:
        return ADMITTED
    if request.object is None:
        return refused(f"{request.operation} without an object")
    if request.object.metadata.deletion_timestamp:
        return ADMITTED
    if request.old_object is not None and request.old_object.spec.image == request.object.spec.image:
        return ADMITTED
    return None


def decide_verdict(request: ReviewRequest, verdict: Verdict, mode: str) -> ReviewResponse:
    """Return the response to a request whose image has a verdict; `mode` is the verification mode."""
    if verdict.verified is True or (verdict.allowed and verdict.reason is Reason.NOT_REQUIRED):
        return ADMITTED
    if verdict.allowed:
        return warned(f"{_image(request)}: {verdict.message}")
    if verdict.verified is None:
        return decide_unknown(request, verdict.message, mode)
    return _refusal(request, verdict.reason, verdict.message)


def decide_error(request: ReviewRequest, error: GKMError, mode: str, *, private: bool = False) -> ReviewResponse:
    """Return the response if the check of the image failed; `private`: only the controllers have the credentials."""
    if is_inconclusive(error, private=private):
        return decide_unknown(request, str(error), mode)
    if mode == "enforce" or error.reason in _REFUSED_ALWAYS:
        return _refusal(request, error.reason, str(error))
    return warned(f"{_image(request)}: {error}")


def decide_unknown(request: ReviewRequest, reason: str, mode: str) -> ReviewResponse:
    """Return the response if the result of the check is not known, for example because it took too long."""
    # In other modes nodes pull it without a valid signature, so the warning promises no verification.
    state = "is not verified yet, and not pulled before it is" if mode == "enforce" else "was not checked"
    return warned(f"{_image(request)} {state}: {reason}")


def is_inconclusive(error: GKMError, *, private: bool) -> bool:
    """Return whether an error says nothing about the image itself.

    The webhook reads registries anonymously, so a denied or hidden private image is no refutation. Registries answer
    for it as if it did not exist, and only the controllers have the credentials that the object or the configuration
    names.
    """
    return error.inconclusive or (private and error.reason is Reason.NOT_FOUND)


def _refusal(request: ReviewRequest, reason: Reason, message: str) -> ReviewResponse:
    return refused(f"{_image(request)} is refused ({reason}): {message}")


def _image(request: ReviewRequest) -> str:
    return f"image {request.image[:200]}"


@dataclass(frozen=True, slots=True)
class _CachedVerdict:
    verdict: Verdict
    stamp: Hashable
    until: float


class VerdictCache:
    """Wraps `images` and caches positive verdicts by repository, digest and namespace. Thread-safe.

    Every call resolves a tag, because it may have moved. Only `verified is True` is cached, because a signature may be
    added a second after a refusal. Beyond `limit` the least recently used verdict is dropped. `stamp` must change with
    everything else that a verdict depends on: a verdict is valid only under its original stamp.
    """

    def __init__(
        self,
        images: ImageChecker,
        stamp: Callable[[], Hashable],
        *,
        seconds: float = CACHE_SECONDS,
        limit: int = MAX_VERDICTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._images = images
        self._stamp = stamp
        self._seconds = seconds
        self._clock = clock
        self._verdicts: LRUCache[_Key, _CachedVerdict] = LRUCache(limit)

    def check_allowed(self, image: str, namespace: str | None) -> None:
        """Raise GKMError if the configuration forbids the image in the namespace (ImageVerifier.check_allowed)."""
        self._images.check_allowed(image, namespace)

    def resolve(self, image: str) -> str:
        """Return the digest that an image reference names now; raise GKMError. Not cached."""
        return self._images.resolve(image)

    def verify(self, image: str, digest: str, namespace: str | None) -> Verdict:
        """Return the verdict on an image with a digest, cached if possible (then without findings); raise GKMError."""
        started, stamp = self._clock(), self._stamp()
        key = (Reference.parse(image).name, digest, namespace)
        cached = self._verdicts.get(key)
        if cached is not None and cached.stamp == stamp and started < cached.until:
            metrics.VERIFY_SECONDS.labels("remembered").observe(self._clock() - started)
            return cached.verdict
        verdict = self._images.verify(image, digest, namespace)
        metrics.VERIFY_SECONDS.labels(_result(verdict)).observe(self._clock() - started)
        # If a file changed meanwhile, it is unknown which version the verdict used.
        if verdict.verified is True and self._stamp() == stamp:
            without_findings = replace(verdict, findings=())
            self._verdicts.put(key, _CachedVerdict(without_findings, stamp, started + self._seconds))
        return verdict

    def claims(self, image: str, digest: str) -> ImageClaims:
        """Return the facts that an image states about itself, from the wrapped checker (ImageChecker.claims)."""
        return self._images.claims(image, digest)


def _result(verdict: Verdict) -> str:
    if verdict.reason is Reason.NOT_REQUIRED:
        return "off"
    return "verified" if verdict.verified else "unknown" if verdict.verified is None else "refused"
