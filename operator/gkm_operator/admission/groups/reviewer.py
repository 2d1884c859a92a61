"""The reviewers of GroupTemplates, Pools, TaskGroups and their pods by path, and the time that a decision may take."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import msgspec
from gkm.api.meta import GROUP
from gkm.api.network_settings import Network
from gkm.templates.values import RenderingUnavailable
from msgspec import structs

from gkm_operator.admission.domains.cluster_view import ClusterView, ReviewView, ViewUnavailable
from gkm_operator.admission.domains.requests import DomainRequest
from gkm_operator.admission.domains.reviewer import ByteBudget, Decision, WorkloadReviewer
from gkm_operator.admission.groups.cluster_view import Partners
from gkm_operator.admission.groups.decisions import (
    ReviewedTaskPod,
    review_deletion,
    review_group,
    review_pool,
    review_task_pod,
    review_template,
)
from gkm_operator.admission.groups.objects import ReviewedGroup, ReviewedIdentity, ReviewedPool, ReviewedTemplate
from gkm_operator.admission.review import ReviewBusy, ReviewResponse
from gkm_operator.admission.singleflight import NotInTime, Overloaded, SingleFlight
from gkm_operator.mnnvl.gpu_requests import GPURequests

T = TypeVar("T")

SECONDS = 5.0
"""Seconds for one decision with all its reads, rendering and dry runs. The API server waits ten."""
OFF = (
    "taskGroups.enabled is off in the configuration of GKM: the object is stored, and GKM ignores it until an "
    "administrator sets taskGroups.enabled to true"
)
THREADS, WAITING = 8, 64
"""Number of concurrent decisions (one namespace or user gets a quarter), and of requests that wait for one."""


def in_time(decision: Decision[T], flights: SingleFlight[ReviewResponse]) -> Decision[T]:
    """Limit the time of a decision; equal concurrent requests share one.

    The decision raises ViewUnavailable if it takes too long, and ReviewBusy if too many requests wait.
    """

    def decide(view: ReviewView, request: DomainRequest[T]) -> ReviewResponse:
        digest = hashlib.sha256(msgspec.json.encode(request)).digest()
        owner = request.namespace or request.user.username
        try:
            return flights.run((decision, digest), (owner,), lambda: decision(view, request))
        except RenderingUnavailable as error:
            raise ViewUnavailable(str(error)) from error
        except NotInTime as error:
            raise ViewUnavailable(f"the review takes more than {SECONDS:g} s") from error
        except Overloaded as error:
            raise ReviewBusy("too many templates, pools and task groups are under review at once") from error

    return decide


def switched_off(decision: Decision[T]) -> Decision[T]:
    """Add a warning to each admission by a decision, while group templates are switched off."""

    def decide(view: ReviewView, request: DomainRequest[T]) -> ReviewResponse:
        response = decision(view, request)
        return structs.replace(response, warnings=(*response.warnings, OFF)) if response.allowed else response

    return decide


def reviewers(
    view: ClusterView, partners: Partners, network: Network, budget: ByteBudget
) -> Mapping[str, WorkloadReviewer[Any]]:
    """Return the reviewers of GroupTemplates, Pools, TaskGroups and their pods by URL path.

    deploy/components/task-groups/webhooks.yaml has the same paths.
    """
    flights: SingleFlight[ReviewResponse] = SingleFlight(THREADS, SECONDS, WAITING)

    enabled = partners.settings.enabled

    def reviewer(kind: str, object_type: type[T], decision: Callable[..., ReviewResponse]) -> WorkloadReviewer[T]:
        decide: Decision[T] = in_time(partial(decision, partners=partners), flights)
        return WorkloadReviewer(GROUP, kind, object_type, decide, view, budget)

    def writing(kind: str, object_type: type[T], decision: Callable[..., ReviewResponse]) -> WorkloadReviewer[T]:
        made = reviewer(kind, object_type, decision)
        return made if enabled else replace(made, decision=switched_off(made.decision))

    deletion = reviewer("GroupTemplate", ReviewedIdentity, review_deletion)
    groups = writing("TaskGroup", ReviewedGroup, review_group)
    pods = partial(review_task_pod, gpus=GPURequests(network), planning=enabled)
    return {
        "/grouptemplates": writing("GroupTemplate", ReviewedTemplate, review_template),
        "/grouptemplates/delete": replace(deletion, operations=frozenset({"DELETE"})),
        "/pools": writing("Pool", ReviewedPool, review_pool),
        # The controllers check a group again, so that an outage of GKM stops no workflow.
        "/taskgroups": replace(groups, lenient=True),
        "/taskgroups/pods": WorkloadReviewer("", "Pod", ReviewedTaskPod, pods, view, budget, lenient=True),
    }
