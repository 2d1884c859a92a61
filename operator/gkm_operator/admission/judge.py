"""One request, judged: the decisions of `decision`, fed with what `Images` says in the time there is."""

import logging
import time

from gkm.api.errors import GKMError
from gkm.hoststate.logs import fields
from gkm.images.signatures.verify import Verdict
from msgspec import structs

from gkm_operator.admission import decision
from gkm_operator.admission.bounded import Bounded, NoAnswer
from gkm_operator.admission.review import Request, Response
from gkm_operator.images import Images

_LOG = logging.getLogger(__name__)

BUDGET_SECONDS = 3.0
"""Of the webhook's ten: what is left covers the way there and back and one more try of the API server."""

THREADS = 16


class Judge:
    """Answers requests. Thread-safe; keeps no state that matters and has no side effects, so dry-run needs nothing."""

    def __init__(self, images: Images, mode: str, *, seconds: float = BUDGET_SECONDS, threads: int = THREADS) -> None:
        self._images = images
        self._mode = mode
        self._bounded: Bounded[Verdict] = Bounded(threads, seconds)

    def answer(self, request: Request) -> Response:
        """Return the answer."""
        started = time.monotonic()
        response = decision.early(request) or self._look(request)
        if response.allowed and (more := decision.unsupported(request)):
            response = structs.replace(response, warnings=(*response.warnings, *more))
        _LOG.info(
            "admitted" if response.allowed else "refused",
            extra=fields(
                cache=request.cache,
                operation=request.operation,
                dryRun=request.dry_run or None,
                image=request.image or None,
                why=response.message or "; ".join(response.warnings) or None,
                seconds=round(time.monotonic() - started, 3),
            ),
        )
        return response

    def _look(self, request: Request) -> Response:
        try:
            return decision.of_verdict(request, self._bounded.run(lambda: self._verdict(request.image, request.scope)))
        except GKMError as error:
            return decision.of_error(request, error, self._mode)
        except NoAnswer as error:
            return decision.of_delay(request, str(error))

    def _verdict(self, image: str, scope: str | None) -> Verdict:
        return self._images.verify(image, self._images.resolve(image), scope)
