"""The reviewer of pods with caches, by its path."""

from collections.abc import Mapping
from typing import Any

from gkm.api.config import Config

from gkm_operator.admission.domains.byte_budget import ByteBudget
from gkm_operator.admission.domains.cluster_view import ClusterView
from gkm_operator.admission.domains.reviewer import WorkloadReviewer
from gkm_operator.admission.pods.decisions import Caches, PodCacheReview
from gkm_operator.admission.pods.objects import CachePod

PATH = "/pods/caches"


def reviewers(
    view: ClusterView, caches: Caches, config: Config, budget: ByteBudget
) -> Mapping[str, WorkloadReviewer[Any]]:
    """Return the reviewer by path (deploy/components/pod-caches/webhooks.yaml)."""
    decision = PodCacheReview(caches, config.network, config.fabric.cache_labels)
    return {PATH: WorkloadReviewer("", "Pod", CachePod, lambda _view: decision, view, budget, lenient=True)}
