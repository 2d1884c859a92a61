"""Reviews one request: runs the image check within the time budget and passes its result to `decision`."""

import logging
import time
from collections.abc import Callable
from typing import Protocol

from gkm.api.config import Registries
from gkm.api.errors import GKMError, Reason
from gkm.hoststate.logs import fields
from gkm.images.reference import Reference
from gkm.images.registries.transport import unreachable
from gkm.images.signatures.verify import Verdict

from gkm_operator import metrics
from gkm_operator.admission import decision
from gkm_operator.admission.review import ReviewRequest, ReviewResponse, encode, parse
from gkm_operator.admission.singleflight import NotInTime, Overloaded, SingleFlight
from gkm_operator.images import ImageChecker

_LOG = logging.getLogger(__name__)

BUDGET_SECONDS = 3.0
"""Of the webhook's ten seconds: the rest covers the network and one retry of the API server."""

THREADS = 16
"""Concurrent image checks; a registry, and a namespace, gets a fourth of them at most."""

WAITING = 64
"""Requests that may wait for a check at once, half of them for one registry or namespace at most; a server with more
threads answers the others."""


class Validator(Protocol):
    """Decides about caches."""

    def review(self, request: ReviewRequest) -> ReviewResponse:
        """Return the response."""


class CacheReviewer:
    """A reviewer of the server (https.server.Reviewer) for caches."""

    def __init__(self, validator: Validator) -> None:
        self._validator = validator

    def review(self, take: Callable[[], bytes | bytearray], decoded: Callable[[], object]) -> bytes:
        """See https.server.Reviewer."""
        request = parse(take())
        decoded()
        return encode(request.uid, self._validator.review(request))


class ImageValidator:
    """Reviews requests. Thread-safe; without side effects, so a dry run needs no special case."""

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
        """Return the response."""
        started = time.monotonic()
        is_late, cause = False, ""
        response = decision.decide_without_image(request)
        if response is None:
            try:
                response = self._check_image(request)
            except NotInTime as error:
                # The same message as for a registry that refuses connections: users must not learn which of the two it
                # was.
                away = unreachable(Reference.parse(request.image).registry)
                response, is_late, cause = decision.decide_unknown(request, str(away), self._mode), True, str(error)
            except Overloaded as error:
                response, is_late = decision.decide_unknown(request, str(error), self._mode), True
        seconds = time.monotonic() - started
        result = decision.result(response, late=is_late)
        # Its labels have fixed sets of values: `review` accepts no other kind.
        metrics.reviewed(request.kind.kind, result, seconds)
        _LOG.info(
            "admitted" if response.allowed else "refused",
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
            return decision.decide_error(request, error, self._mode, private=private)
        return decision.decide_verdict(request, verdict, self._mode)

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
                if decision.is_inconclusive(error, private=private):
                    raise
        return verdict
