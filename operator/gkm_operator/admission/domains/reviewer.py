"""The reviewers of workloads by path: decode a request within a budget, decide, and record the result.

A review that must read decides in several attempts: what it decoded is dropped before it waits for the API server.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from gkm.api import grove
from gkm.api.network_settings import Network
from gkm.hoststate.logs import fields

from gkm_operator import metrics
from gkm_operator.admission import decision
from gkm_operator.admission.domains import requests
from gkm_operator.admission.domains.byte_budget import ByteBudget
from gkm_operator.admission.domains.cliques import CliqueReview, ScalingGroupReview
from gkm_operator.admission.domains.cluster_view import ClusterView
from gkm_operator.admission.domains.pods import PodReview
from gkm_operator.admission.domains.requests import DomainRequest, Envelope, ObjectInvalid
from gkm_operator.admission.domains.review_view import ReviewView, Unread
from gkm_operator.admission.domains.sets import SetDefaults, SetValidation
from gkm_operator.admission.domains.view import TooManyClaims, View, ViewUnavailable
from gkm_operator.admission.review import ReviewResponse, encode

_LOG = logging.getLogger(__name__)
T = TypeVar("T")

DECODING_BYTES = 8 << 20
"""Texts that are decoded at one time: one of the largest size, and others of another namespace."""
WAITING_BYTES = 16 << 20
"""Texts that wait for the API server, not decoded."""
MAX_PATCHED_BYTES = 1 << 20
"""Of an object that was valid and must stay so, as JSON, which is not shorter than what is stored. etcd takes requests
of 1.5 MiB (--max-request-bytes); a patch has 32 KiB at most, and managed fields name its fields once more."""


class Decision(Protocol[T]):
    """Decides about one request."""

    def decide(self, request: DomainRequest[T]) -> ReviewResponse:
        """Return the response.

        Raises:
            ViewUnavailable: the cluster cannot be read.
        """


@dataclass(frozen=True)
class Budgets:
    """The bytes that all reviews of workloads share."""

    decoding: ByteBudget = field(default_factory=partial(ByteBudget, DECODING_BYTES))
    waiting: ByteBudget = field(default_factory=partial(ByteBudget, WAITING_BYTES))


@dataclass(frozen=True)
class WorkloadReviewer(Generic[T]):
    """A reviewer of the server (https.server.Reviewer) for one kind. Thread-safe; without side effects.

    A request that cannot be decided is refused, and admitted with a warning if it is `lenient`.
    """

    group: str
    kind: str
    type: type[T]
    decision: Callable[[View], Decision[T]]
    cluster: ClusterView
    budgets: Budgets
    lenient: bool = False
    operations: frozenset[str] = frozenset({"CREATE", "UPDATE"})

    def review(self, take: Callable[[], bytes | bytearray], decoded: Callable[[], object]) -> bytes:
        """See https.server.Reviewer."""
        started = time.monotonic()
        body = take()
        envelope = requests.open_envelope(body, self.group, self.kind)
        size = len(body)
        del body
        response = self._decide(envelope, size, decoded)
        result = decision.result(response, late=False)
        seconds = time.monotonic() - started
        metrics.reviewed(self.kind, result, seconds)
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

    def _decide(self, envelope: Envelope, size: int, decoded: Callable[[], object]) -> ReviewResponse:
        if envelope.operation not in self.operations or envelope.sub_resource:
            return ReviewResponse(allowed=True)
        view = ReviewView(self.cluster)
        response = self._attempt(envelope, size, view)
        if response is not None:
            return response
        with self.budgets.waiting.reserve(envelope.namespace, size, view.remaining_seconds):
            decoded()  # from now on the body counts here: the server may read others while this one waits
            while response is None:
                view.read()
                response = self._attempt(envelope, size, view)
        return response

    def _attempt(self, envelope: Envelope, size: int, view: ReviewView) -> ReviewResponse | None:
        """Return the response; None if the view must read first."""
        with self.budgets.decoding.reserve(envelope.namespace, size, view.remaining_seconds):
            return self._decode_and_decide(envelope, view)

    def _decode_and_decide(self, envelope: Envelope, view: ReviewView) -> ReviewResponse | None:
        try:
            response = self._bounded(envelope, self.decision(view).decide(requests.decode(envelope, self.type)))
        except Unread:
            return None
        except ObjectInvalid as error:
            return self._undecided(f"this {self.kind} cannot be read: {error}")
        except TooManyClaims as error:
            return self._undecided(f"GKM cannot decide about this {self.kind}: {error}")
        except ViewUnavailable as error:
            response = self._undecided(f"GKM cannot decide about this {self.kind} now: {error}; try again")
        return response if view.complete else None

    def _bounded(self, envelope: Envelope, response: ReviewResponse) -> ReviewResponse:
        """Return the response; without its patch if a lenient one could make the object too large."""
        if not (self.lenient and response.patch) or memoryview(envelope.object).nbytes <= MAX_PATCHED_BYTES:
            return response
        limit = f"more than {MAX_PATCHED_BYTES >> 20} MiB, and etcd may not store it with more"
        return self._undecided(f"GKM leaves this {self.kind} as it is: it has {limit}")

    def _undecided(self, why: str) -> ReviewResponse:
        return (
            ReviewResponse(allowed=True, warnings=(why,))
            if self.lenient
            else ReviewResponse(allowed=False, message=why)
        )


def reviewers(
    view: ClusterView, settings: Network, budgets: Budgets | None = None
) -> Mapping[str, WorkloadReviewer[Any]]:
    """Return the reviewers by path (deploy/components/domains/webhooks.yaml)."""
    budgets = budgets or Budgets()

    def grove_reviewer(kind: str, object_type: type[T], review: Callable[..., Decision[T]]) -> WorkloadReviewer[T]:
        decide = partial(review, settings=settings)
        return WorkloadReviewer(grove.GROUP, kind, object_type, decide, view, budgets)

    pods = partial(PodReview, settings=settings)
    return {
        "/podcliquesets/default": grove_reviewer("PodCliqueSet", requests.ReviewedSet, SetDefaults),
        "/podcliquesets/validate": grove_reviewer("PodCliqueSet", requests.ReviewedSet, SetValidation),
        "/podcliques": grove_reviewer("PodClique", requests.ReviewedClique, CliqueReview),
        "/podcliquescalinggroups": grove_reviewer(
            "PodCliqueScalingGroup", requests.ReviewedScalingGroup, ScalingGroupReview
        ),
        "/pods": WorkloadReviewer("", "Pod", requests.ReviewedPod, pods, view, budgets, lenient=True),
    }
