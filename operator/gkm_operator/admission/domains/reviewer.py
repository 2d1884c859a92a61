"""The reviewers of workloads by path: decode a request within a budget, decide, and record the result.

The budget limits the bytes under review, shared fairly by namespaces: a decoded request takes up to 20 times the bytes
of its text, also while its review waits for the API server.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Condition
from typing import Any, Generic, TypeVar

from gkm.api import grove
from gkm.api.network_settings import Network
from gkm.hoststate.logs import fields

from gkm_operator import metrics
from gkm_operator.admission import review
from gkm_operator.admission.domains import requests
from gkm_operator.admission.domains.cliques import review_clique, review_scaling_group
from gkm_operator.admission.domains.cluster_view import ClusterView, ReviewView, TooManyClaims, ViewUnavailable
from gkm_operator.admission.domains.pods import review_pod
from gkm_operator.admission.domains.requests import DomainRequest, Envelope, ObjectInvalid
from gkm_operator.admission.domains.sets import set_defaults, validate_set
from gkm_operator.admission.review import (
    ADMITTED,
    AdmissionRequest,
    ReviewBusy,
    ReviewResponse,
    encode,
    refused,
    warned,
)
from gkm_operator.mnnvl.gpu_requests import GPURequests

REVIEWED_BYTES = 16 << 20
"""Limit of bytes of all requests under review: three of the largest size, and smaller ones."""
WAIT_SECONDS = 0.5
"""Seconds that a review waits for other reviews to end; the API server repeats a request after 503."""

_LOG = logging.getLogger(__name__)
T = TypeVar("T")

MAX_PATCHED_BYTES = 1 << 20
"""The size of an object that was valid and must stay so, as JSON, which is not shorter than the stored form. etcd takes
requests of 1.5 MiB (--max-request-bytes); a patch has 32 KiB at most, and managed fields name its fields once more."""


class ByteBudget:
    """Limits the bytes of requests under review. One namespace gets at most half of the free bytes.

    So no number of namespaces can take the last bytes from a usual request of 20 KB. Thread-safe.
    """

    def __init__(self, limit: int = REVIEWED_BYTES) -> None:
        self._free = limit
        self._used: Counter[str] = Counter()
        self._released = Condition()

    @contextmanager
    def reserve(self, namespace: str, size: int, seconds: float = WAIT_SECONDS) -> Iterator[None]:
        """Reserve `size` bytes until the block ends; wait for them for at most `seconds`.

        Raises:
            ReviewBusy: other requests use the bytes for too long.
        """
        with self._released:
            if not self._released.wait_for(lambda: self._fits(namespace, size), min(seconds, WAIT_SECONDS)):
                raise ReviewBusy("too many large requests about workloads are under review at once")
            self._free -= size
            self._used[namespace] += size
        try:
            yield
        finally:
            with self._released:
                self._free += size
                self._used[namespace] -= size
                if not self._used[namespace]:
                    del self._used[namespace]  # users choose namespaces, so unused ones must not accumulate
                self._released.notify_all()

    def _fits(self, namespace: str, size: int) -> bool:
        return self._used[namespace] + size <= self._free - size


Decision = Callable[[ReviewView, DomainRequest[T]], ReviewResponse]
"""Returns the admission response to one request for a workload or a group template.

Raises:
    ViewUnavailable: the cluster cannot be read.
"""


@dataclass(frozen=True)
class WorkloadReviewer(Generic[T]):
    """Reviews admission requests about objects of one kind (https.server.Reviewer). Thread-safe; without side effects.

    A request that cannot be decided is refused, and admitted with a warning if it is `lenient`.
    """

    group: str
    kind: str
    type: type[T]
    decision: Decision[T]
    cluster: ClusterView
    budget: ByteBudget
    lenient: bool = False
    operations: frozenset[str] = frozenset({"CREATE", "UPDATE"})

    def __call__(self, take: Callable[[], bytes | bytearray], decoded: Callable[[], object]) -> bytes:
        """Return the AdmissionReview with the response to a request, as https.server.Reviewer describes."""
        started = time.monotonic()
        body = take()
        size = len(body)
        envelope = requests.open_envelope(body, self.group, self.kind)
        del body
        head = envelope.head
        response = ADMITTED
        if head.operation in self.operations and not head.sub_resource:
            with self.budget.reserve(head.namespace, size):
                decide = self._decode(envelope)
                del envelope
                decoded()  # the body is not in memory any more, also while the decision waits for the API server
                response = decide()
                del decide  # before others get its bytes
        self._record(head, response, time.monotonic() - started)
        return encode(head.uid, response)

    def _decode(self, envelope: Envelope) -> Callable[[], ReviewResponse]:
        """Return what decides about the decoded request; it does not refer to the envelope."""
        try:
            request = requests.decode(envelope, self.type)
        except ObjectInvalid as error:
            return partial(self._undecided, f"this {self.kind} cannot be read: {error}")
        patchable = not self.lenient or memoryview(envelope.object).nbytes <= MAX_PATCHED_BYTES
        return partial(self._decide, request, patchable=patchable)

    def _decide(self, request: DomainRequest[T], *, patchable: bool) -> ReviewResponse:
        try:
            response = self.decision(ReviewView(self.cluster), request)
        except TooManyClaims as error:
            return self._undecided(f"GKM cannot decide about this {self.kind}: {error}")
        except ViewUnavailable as error:
            return self._undecided(f"GKM cannot decide about this {self.kind} now: {error}; try again")
        if response.patch and not patchable:
            limit = f"more than {MAX_PATCHED_BYTES >> 20} MiB, and etcd may not store it with more"
            return self._undecided(f"GKM leaves this {self.kind} as it is: it has {limit}")
        return response

    def _record(self, request: AdmissionRequest, response: ReviewResponse, seconds: float) -> None:
        result = review.result(response, late=False)
        metrics.reviewed(self.kind, result, seconds)
        _LOG.log(
            logging.DEBUG if result == "admitted" and not response.patch else logging.INFO,
            "object admitted" if response.allowed else "object refused",
            extra=fields(
                object=f"{self.kind} {request.namespace}/{request.name}",
                operation=request.operation,
                dryRun=request.dry_run or None,
                patched=bool(response.patch) or None,
                why=response.message or "; ".join(response.warnings) or None,
                seconds=round(seconds, 3),
            ),
        )

    def _undecided(self, why: str) -> ReviewResponse:
        return (warned if self.lenient else refused)(why)


def reviewers(view: ClusterView, settings: Network, budget: ByteBudget) -> Mapping[str, WorkloadReviewer[Any]]:
    """Return the reviewers of PodCliqueSets, PodCliques, scaling groups and pods by URL path.

    deploy/components/domains/webhooks.yaml has the same paths.
    """

    def grove_reviewer(kind: str, object_type: type[T], decision: Callable[..., ReviewResponse]) -> WorkloadReviewer[T]:
        return WorkloadReviewer(grove.GROUP, kind, object_type, partial(decision, gpus=gpus), view, budget)

    gpus = GPURequests(settings)
    pods = partial(review_pod, gpus=gpus)
    return {
        "/podcliquesets/default": grove_reviewer("PodCliqueSet", requests.ReviewedSet, set_defaults),
        "/podcliquesets/validate": grove_reviewer("PodCliqueSet", requests.ReviewedSet, validate_set),
        "/podcliques": grove_reviewer("PodClique", requests.ReviewedClique, review_clique),
        "/podcliquescalinggroups": grove_reviewer(
            "PodCliqueScalingGroup", requests.ReviewedScalingGroup, review_scaling_group
        ),
        "/pods": WorkloadReviewer("", "Pod", requests.ReviewedPod, pods, view, budget, lenient=True),
    }
