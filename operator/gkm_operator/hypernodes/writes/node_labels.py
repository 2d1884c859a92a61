"""Writes the labels of levels on Nodes: GKM's keys only, those that differ only, at a limited rate.

A label that a node must not have is removed. Other labels, and the rest of a Node, are never part of a patch. A patch
has the uid, so that a node that was created anew meanwhile, perhaps elsewhere, gets no label of the old place.
"""

import logging
from collections.abc import Callable, Mapping

from gkm.api.grammar import count_of
from gkm.api.topology_status import TopologyReason
from gkm.hoststate.logs import fields
from gkm.kube.api import Api
from gkm.kube.errors import NO_RESPONSE, ApiError
from gkm.kube.workqueue import Retry
from gkm.topology.nodes import Node
from gkm.topology.trees.topologies import difference, level_labels

from gkm_operator import metrics
from gkm_operator.hypernodes.findings import Blocked
from gkm_operator.hypernodes.watcher import TopologyWatcher
from gkm_operator.nodes import NODES

_LOG = logging.getLogger(__name__)
_TOO_MANY, _SERVER_ERROR = 429, 500


class LabelWriter:
    """For one thread. `pace` waits until the next request may be sent, and returns whether it may be sent at all."""

    def __init__(self, api: Api, watcher: TopologyWatcher, *, pace: Callable[[], bool]) -> None:
        self._api = api
        self._watcher = watcher
        self._pace = pace

    def write(self, wanted: Callable[[], Mapping[str, Mapping[str, str]]]) -> int:
        """Write the labels of nodes that differ; return the number of requests.

        A pass takes minutes, so each node gets what `wanted` returns right before its request.

        Raises:
            ApiError: the API server does not respond, or not now.
            Blocked: some nodes were refused.
            Retry: this process ends, or nodes have changed meanwhile.
        """
        refused: list[str] = []
        written = changed = 0
        for node in self._watcher.nodes.values():
            if not difference(level_labels(node.labels), wanted().get(node.name, {})):
                continue
            if not self._pace():
                raise Retry("this process ends")
            try:
                if self._label(node, wanted().get(node.name, {})):
                    written += 1
                else:
                    changed += 1
            except ApiError as error:
                if error.status in {NO_RESPONSE, _TOO_MANY} or error.status >= _SERVER_ERROR:
                    raise
                refused.append(str(error))
        if written:
            _LOG.info("nodes labeled", extra=fields(nodes=written, refused=len(refused)))
        if refused:
            message = f"the API server refuses the labels of {count_of(len(refused), 'node')}"
            raise Blocked(TopologyReason.WRITE_FAILED, message, detail=min(refused))
        if changed:
            raise Retry(f"{count_of(changed, 'node')} changed meanwhile")
        return written

    def _label(self, node: Node, wanted: Mapping[str, str]) -> bool:
        """Send a request; return False if the node, or what is wanted of it, has changed meanwhile."""
        now = self._watcher.nodes.get(node.name)
        if now is None or now.metadata.uid != node.metadata.uid:
            return False
        labels = difference(level_labels(now.labels), wanted)
        if not labels:
            return False
        try:
            self._api.merge(NODES, node.name, {"metadata": {"uid": node.metadata.uid, "labels": labels}})
        except ApiError as error:
            # The API server calls another uid in a patch a conflict, or an invalid value of metadata.uid.
            if error.conflict or error.not_found or "metadata.uid" in error.message:
                return False
            raise
        metrics.TOPOLOGY_CHANGES.labels("Node", "update").inc()
        return True
