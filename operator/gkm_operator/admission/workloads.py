"""Create the reviewers of workloads, group templates and pods that the flags enable, with their watches.

Imported only with such a flag: without one, the process needs no access to the API, and saves the client's memory.
"""

import argparse
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from gkm.api.config import Config
from gkm.kube.client import READ_SECONDS, connect
from gkm.kube.secrets import own_namespace
from gkm.templates.rendering.process import RenderingProcess

from gkm_operator import metrics
from gkm_operator.admission.domains import cluster_view
from gkm_operator.admission.domains import reviewer as domains
from gkm_operator.admission.domains.cluster_view import ClusterView
from gkm_operator.admission.domains.reviewer import ByteBudget, WorkloadReviewer
from gkm_operator.admission.groups import reviewer as groups
from gkm_operator.admission.groups.cluster_view import ApiChecks, ObservedTemplates, Partners
from gkm_operator.admission.pods.decisions import PodCacheReview
from gkm_operator.admission.pods.gates import GatedPod, review_gated_pod
from gkm_operator.admission.pods.members import ObservedCaches
from gkm_operator.admission.pods.objects import CachePod
from gkm_operator.delivery import ObservedDelivery
from gkm_operator.mnnvl.gpu_requests import GPURequests

if TYPE_CHECKING:
    from gkm.kube.reflector import Reflector

PATH = "/pods/caches"
GATES_PATH = "/pods/gates"


def cache_reviewers(
    view: ClusterView, caches: ObservedCaches, delivery: ObservedDelivery, config: Config, budget: ByteBudget
) -> Mapping[str, WorkloadReviewer[Any]]:
    """Return the reviewer of pods that name caches, for its URL path.

    deploy/components/pod-caches/webhooks.yaml has the same path.
    """
    review = PodCacheReview(caches, config.network, config.fabric.cache_labels, lambda: delivery.kind)
    return {PATH: WorkloadReviewer("", "Pod", CachePod, review.decide, view, budget, lenient=True)}


def gate_reviewers(view: ClusterView, config: Config, budget: ByteBudget) -> Mapping[str, WorkloadReviewer[Any]]:
    """Return the reviewer that adds the scheduling gate to a Run's pods, for its URL path.

    It needs no watch, because the controllers know the plans.
    """
    decision = partial(review_gated_pod, gpus=GPURequests(config.network), enabled=config.packing.pod_gates)
    return {GATES_PATH: WorkloadReviewer("", "Pod", GatedPod, decision, view, budget, lenient=True)}


class WorkloadReviews:
    """The enabled reviewers of workloads by URL path, and their watches. All share one limit of bytes."""

    def __init__(self, arguments: argparse.Namespace, config: Config) -> None:
        """Connect to the API server; raise NotConfigured if no API server is configured."""
        api, reads = (
            connect(arguments.kubeconfig, arguments.context, metrics.api_answered, timeout=seconds)
            for seconds in (READ_SECONDS, cluster_view.READ_SECONDS)
        )
        view, budget = ClusterView(api, reads, own_namespace()), ByteBudget()
        self.reviewers: dict[str, WorkloadReviewer[Any]] = {}
        self._watches: list[Reflector[Any]] = []
        self._renderer: RenderingProcess | None = None
        if arguments.domains:
            self.reviewers |= domains.reviewers(view, config.network, budget)
            self._watches += view.watches()
        if arguments.task_groups:
            templates, self._renderer = ObservedTemplates(api, reads), RenderingProcess()
            partners = Partners(templates, ApiChecks(reads), self._renderer, config.task_groups)
            self.reviewers |= groups.reviewers(view, partners, config.network, budget)
            self._watches += templates.watches()
        if arguments.pod_caches:
            caches, delivery = ObservedCaches(api), ObservedDelivery(api, config.delivery)
            self.reviewers |= cache_reviewers(view, caches, delivery, config, budget)
            self._watches += [*caches.watches(), *delivery.watches()]
        if arguments.pod_gates:
            self.reviewers |= gate_reviewers(view, config, budget)

    def start(self) -> None:
        """Start the watches of the enabled reviewers."""
        for watch in self._watches:
            watch.start()

    def close(self) -> None:
        """End the watches, and the renderer of group templates if there is one."""
        for watch in self._watches:
            watch.close()
        if self._renderer is not None:
            self._renderer.close()
