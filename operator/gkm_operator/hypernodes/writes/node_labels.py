"""Writes the labels of levels on Nodes: GKM's keys only, those that differ only, at a limited rate.

A label that a node must not have is removed. Other labels, and the rest of a Node, are never part of a patch.
"""

import logging
from collections.abc import Callable, Mapping

from gkm.api.grammar import count_of
from gkm.api.topology_status import TopologyReason
from gkm.hoststate.logs import fields
from gkm.kube.api import Api
from gkm.kube.errors import NO_RESPONSE, ApiError
from gkm.kube.workqueue import Retry

from gkm_operator import metrics
from gkm_operator.hypernodes.findings import Blocked
from gkm_operator.hypernodes.objects import NODES
from gkm_operator.hypernodes.watcher import TopologyWatcher, level_labels

_LOG = logging.getLogger(__name__)
_TOO_MANY, _SERVER_ERROR = 429, 500


class LabelWriter:
    """For one thread. `pace` waits until the next request may be sent, and returns whether it may be sent at all."""

    def __init__(self, api: Api, watcher: TopologyWatcher, *, pace: Callable[[], bool]) -> None:
        self._api = api
        self._watcher = watcher
        self._pace = pace

    def write(self, wanted: Mapping[str, Mapping[str, str]]) -> int:
        """Write the labels of nodes that differ; return the number of requests.

        Raises:
            ApiError: the API server does not respond, or not now.
            Blocked: some nodes were refused.
            Retry: another process leads.
        """
        refused: list[str] = []
        written = 0
        for node in self._watcher.nodes.values():
            patch = difference(level_labels(node), wanted.get(node.name, {}))
            if not patch:
                continue
            if not self._pace():
                raise Retry("another process leads, or this one ends")
            try:
                self._api.merge(NODES, node.name, {"metadata": {"labels": patch}})
            except ApiError as error:
                if error.status in {NO_RESPONSE, _TOO_MANY} or error.status >= _SERVER_ERROR:
                    raise
                if not error.not_found:
                    refused.append(str(error))
                continue
            written += 1
            metrics.TOPOLOGY_CHANGES.labels("Node", "update").inc()
        if written:
            _LOG.info("nodes labeled", extra=fields(nodes=written, refused=len(refused)))
        if refused:
            message = f"the API server refuses the labels of {count_of(len(refused), 'node')}"
            raise Blocked(TopologyReason.WRITE_FAILED, message, detail=min(refused))
        return written


def difference(found: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    """Return the labels to change, None for one to remove."""
    patch: dict[str, str | None] = dict.fromkeys(found.keys() - wanted.keys())
    return patch | {key: value for key, value in wanted.items() if found.get(key) != value}
