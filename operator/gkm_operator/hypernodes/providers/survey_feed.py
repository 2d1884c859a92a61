"""Gives the provider `infiniband` the surveys of chosen nodes."""

from collections.abc import Mapping

from gkm.api.fabrics import SURVEY_PREFIX
from gkm.api.grammar import count_of
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.workqueue import Retry

from gkm_operator.hypernodes.objects import SURVEY_TEXTS
from gkm_operator.hypernodes.providers.cluster_watch import ClusterWatch
from gkm_operator.hypernodes.providers.view import AgentReport, LiveView

MAX_SURVEYS = 32
"""Surveys that count, of the nodes whose names come first: one node of each subnet is enough. Each has 1 MB at most."""


class SurveyFeed:
    """For one thread at a time."""

    def __init__(self, api: Api, watch: ClusterWatch, view: LiveView, namespace: str) -> None:
        self._api = api
        self._watch = watch
        self._view = view
        self._namespace = namespace
        self._published: dict[str, str] = {}
        """Digests by node."""
        self._absent: dict[str, str] = {}
        """Digests of surveys that the API server did not have any more when they were fetched, by node."""

    def awaited(self) -> str:
        """Return that chosen surveys were not fetched yet, if so; the tree of the others would lose their nodes."""
        missing = sum(
            node not in self._published and self._absent.get(node) != digest for node, digest in self._chosen().items()
        )
        return f"waits for {count_of(missing, 'survey')}, which the API server has not given yet" if missing else ""

    def publish(self) -> None:
        """Publish what has changed. Those of nodes that are not chosen any more are removed.

        Raises:
            ApiError: a survey cannot be fetched; the others are published.
            Retry: the surveys are not listed yet.
        """
        if not (self._watch.nodes.synced.is_set() and self._watch.surveys.synced.is_set()):
            raise Retry("the surveys are not listed yet")
        chosen = self._chosen()
        self._absent = {node: digest for node, digest in self._absent.items() if node in chosen}
        for node in self._published.keys() - chosen.keys():
            self._view.publish([], [("Survey", node)])
            del self._published[node]
        failed: ApiError | None = None
        for node, digest in chosen.items():
            if self._published.get(node) == digest:
                continue
            try:
                text = self._api.get(SURVEY_TEXTS, SURVEY_PREFIX + node, self._namespace).data.text
            except ApiError as error:
                failed = error
                if error.not_found:
                    self._absent[node] = digest
                continue
            self._view.publish([AgentReport("Survey", node, text.encode())])
            self._published[node] = digest
        if failed is not None:
            raise failed

    def _chosen(self) -> Mapping[str, str]:
        return dict(sorted(self._watch.chosen_surveys().items())[:MAX_SURVEYS])
