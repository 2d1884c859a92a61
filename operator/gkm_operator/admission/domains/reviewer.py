"""The reviewers of workloads by path: decode a request within a budget, decide, and record the result."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from gkm.api import grove
from gkm.api.network_settings import Network
from gkm.hoststate.logs import fields

from gkm_operator import metrics
from gkm_operator.admission import decision
from gkm_operator.admission.domains import requests
from gkm_operator.admission.domains.byte_budget import ByteBudget
from gkm_operator.admission.domains.cliques import CliqueReview, ScalingGroupReview
from gkm_operator.admission.domains.pods import PodReview
from gkm_operator.admission.domains.requests import Envelope, ObjectInvalid, Request
from gkm_operator.admission.domains.sets import SetDefaults, SetValidation
from gkm_operator.admission.domains.view import View, ViewUnavailable
from gkm_operator.admission.review import ReviewResponse, encode

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


class Decision(Protocol[T]):
    """Decides about one request."""

    def decide(self, request: Request[T]) -> ReviewResponse:
        """Return the response.

        Raises:
            ViewUnavailable: the cluster cannot be read.
        """


@dataclass(frozen=True)
class WorkloadReviewer(Generic[T]):
    """A reviewer of the server (https.server.Reviewer) for one kind. Thread-safe; without side effects.

    A request that cannot be decided is refused, and admitted with a warning if it is `lenient`.
    """

    group: str
    kind: str
    type: type[T]
    decision: Decision[T]
    budget: ByteBudget
    lenient: bool = False

    def review(self, take: Callable[[], bytes | bytearray], decoded: Callable[[], object]) -> bytes:
        """See https.server.Reviewer."""
        started = time.monotonic()
        body = take()
        with self.budget.reserve(len(body)):
            envelope = requests.open_envelope(body, self.group, self.kind)
            del body
            response = self._decide(envelope, decoded)
        result = decision.result(response, late=False)
        seconds = time.monotonic() - started
        metrics.ADMISSION_SECONDS.labels(self.kind, result).observe(seconds)
        _LOG.log(
            logging.DEBUG if result == "admitted" and not response.patch else logging.INFO,
            "admitted" if response.allowed else "refused",
            extra=fields(
                object=f"{self.kind} {envelope.namespace}/{envelope.name}",
                operation=envelope.operation,
                dryRun=envelope.dry_run or None,
                patched=bool(response.patch) or None,
                why=response.message or "; ".join(response.warnings) or None,
                seconds=round(seconds, 3),
            ),
        )
        return encode(envelope.uid, response)

    def _decide(self, envelope: Envelope, decoded: Callable[[], object]) -> ReviewResponse:
        if envelope.operation not in {"CREATE", "UPDATE"} or envelope.sub_resource:
            return ReviewResponse(allowed=True)
        try:
            request = requests.decode(envelope, self.type)
            decoded()
            return self.decision.decide(request)
        except ObjectInvalid as error:
            return self._undecided(f"this {self.kind} cannot be read: {error}")
        except ViewUnavailable as error:
            return self._undecided(f"GKM cannot decide about this {self.kind} now: {error}; try again")

    def _undecided(self, why: str) -> ReviewResponse:
        return (
            ReviewResponse(allowed=True, warnings=(why,))
            if self.lenient
            else ReviewResponse(allowed=False, message=why)
        )


def reviewers(view: View, settings: Network) -> Mapping[str, WorkloadReviewer[Any]]:
    """Return the reviewers by path (deploy/components/domains/webhooks.yaml)."""
    budget = ByteBudget()

    def one(kind: str, object_type: type[T], how: Decision[T]) -> WorkloadReviewer[T]:
        return WorkloadReviewer(grove.GROUP, kind, object_type, how, budget)

    pods = PodReview(view, settings)
    return {
        "/podcliquesets/default": one("PodCliqueSet", requests.ReviewedSet, SetDefaults(view, settings)),
        "/podcliquesets/validate": one("PodCliqueSet", requests.ReviewedSet, SetValidation(view, settings)),
        "/podcliques": one("PodClique", requests.ReviewedClique, CliqueReview(view, settings)),
        "/podcliquescalinggroups": one(
            "PodCliqueScalingGroup", requests.ReviewedScalingGroup, ScalingGroupReview(view, settings)
        ),
        "/pods": WorkloadReviewer("", "Pod", requests.ReviewedPod, pods, budget, lenient=True),
    }
