"""The reviewers of GroupTemplates, Pools, TaskGroups and their pods by path, and the time that a decision may take."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec
from gkm.api.meta import GROUP
from gkm.api.network_settings import Network
from gkm.templates.values import RenderingUnavailable
from msgspec import structs

from gkm_operator.admission.domains.cluster_view import ClusterView, ViewUnavailable
from gkm_operator.admission.domains.requests import DomainRequest
from gkm_operator.admission.domains.reviewer import ByteBudget, Decision, WorkloadReviewer
from gkm_operator.admission.groups.cluster_view import Partners
from gkm_operator.admission.groups.decisions import (
    PoolReview,
    ReviewedTaskPod,
    TaskGroupReview,
    TaskPodReview,
    TemplateDeletion,
    TemplateReview,
)
from gkm_operator.admission.groups.objects import ReviewedGroup, ReviewedIdentity, ReviewedPool, ReviewedTemplate
from gkm_operator.admission.review import ReviewBusy, ReviewResponse
from gkm_operator.admission.singleflight import NotInTime, Overloaded, SingleFlight

T = TypeVar("T")

SECONDS = 5.0
"""Seconds for one decision with all its reads, rendering and dry runs. The API server waits ten."""
OFF = (
    "taskGroups.enabled is off in the configuration of GKM: the object is stored, and GKM ignores it until an "
    "administrator sets taskGroups.enabled to true"
)
THREADS, WAITING = 8, 64
"""Number of concurrent decisions (one namespace or user gets a quarter), and of requests that wait for one."""


class InTime(Generic[T]):
    """Limits the time of decisions about admission requests; equal concurrent requests share one. Thread-safe."""

    def __init__(self, decision: Decision[T], flights: SingleFlight[ReviewResponse]) -> None:
        self._decision = decision
        self._flights = flights

    def decide(self, request: DomainRequest[T]) -> ReviewResponse:
        """Return the admission response of the wrapped decision.

        Raises:
            ViewUnavailable: the decision takes too long, or the API server does not answer.
            ReviewBusy: too many requests wait.
        """
        digest = hashlib.sha256(msgspec.json.encode(request)).digest()
        owner = request.namespace or request.user.username
        try:
            return self._flights.run((type(self._decision), digest), (owner,), lambda: self._decision.decide(request))
        except RenderingUnavailable as error:
            raise ViewUnavailable(str(error)) from error
        except NotInTime as error:
            raise ViewUnavailable(f"the review takes more than {SECONDS:g} s") from error
        except Overloaded as error:
            raise ReviewBusy("too many templates, pools and task groups are under review at once") from error


class SwitchedOff(Generic[T]):
    """Wraps a decision while group templates are switched off: each admission gets a warning. Thread-safe."""

    def __init__(self, decision: Decision[T]) -> None:
        self._decision = decision

    def decide(self, request: DomainRequest[T]) -> ReviewResponse:
        """Return the admission response with the warning; raises as the wrapped decision does."""
        response = self._decision.decide(request)
        return structs.replace(response, warnings=(*response.warnings, OFF)) if response.allowed else response


def reviewers(
    view: ClusterView, partners: Partners, network: Network, budget: ByteBudget
) -> Mapping[str, WorkloadReviewer[Any]]:
    """Return the reviewers of GroupTemplates, Pools, TaskGroups and their pods by URL path.

    deploy/components/task-groups/webhooks.yaml has the same paths.
    """
    flights: SingleFlight[ReviewResponse] = SingleFlight(THREADS, SECONDS, WAITING)

    def reviewer(kind: str, object_type: type[T], decision: Decision[T]) -> WorkloadReviewer[T]:
        in_time = InTime(decision, flights)
        return WorkloadReviewer(GROUP, kind, object_type, lambda _view: in_time, view, budget)

    def writing(kind: str, object_type: type[T], decision: Decision[T]) -> WorkloadReviewer[T]:
        made = reviewer(kind, object_type, decision)
        if partners.settings.enabled:
            return made
        return replace(made, decision=lambda view: SwitchedOff(made.decision(view)))

    deletion = reviewer("GroupTemplate", ReviewedIdentity, TemplateDeletion(partners.templates))
    groups = writing("TaskGroup", ReviewedGroup, TaskGroupReview(partners))
    pods = partial(TaskPodReview, settings=network, planning=partners.settings.enabled)
    return {
        "/grouptemplates": writing("GroupTemplate", ReviewedTemplate, TemplateReview(partners)),
        "/grouptemplates/delete": replace(deletion, operations=frozenset({"DELETE"})),
        "/pools": writing("Pool", ReviewedPool, PoolReview(partners)),
        # The controllers check a group again, so that an outage of GKM stops no workflow.
        "/taskgroups": replace(groups, lenient=True),
        "/taskgroups/pods": WorkloadReviewer("", "Pod", ReviewedTaskPod, pods, view, budget, lenient=True),
    }
