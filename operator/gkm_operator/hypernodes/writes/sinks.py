"""The targets of the tree: HyperNodes, the Topologies of Kueue and KAI, labels of nodes.

Each sink waits for its kind, and reports why it is not up to date. None stops another.

The Topology of Kueue or of KAI lists node labels, so it changes with the configuration only. Both refuse a change of
all levels. A change that GKM cannot or must not make is reported with the command that helps.

On Nodes, only labels of GKM's keys that differ are written, at a limited rate. A label that a node must not have is
removed. Other labels, and the rest of a Node, are never part of a patch. A patch has the uid, so that a node that was
created anew meanwhile, perhaps elsewhere, gets no label of the old place.
"""

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gkm.api.features import Feature, install
from gkm.api.grammar import count_of
from gkm.api.hypernodes import SchedulerTopology
from gkm.api.mnnvl_metadata import WRITER, WRITER_LABEL
from gkm.api.topology_status import TopologyReason
from gkm.hoststate.logs import fields
from gkm.kube.api import Api
from gkm.kube.discovery import is_served
from gkm.kube.errors import NO_RESPONSE, ApiError
from gkm.kube.resources import Resource
from gkm.kube.workqueue import Retry
from gkm.topology.nodes import Node
from gkm.topology.trees.topologies import difference, level_labels

from gkm_operator import metrics
from gkm_operator.hypernodes.findings import Blocked, PartFinding
from gkm_operator.hypernodes.watcher import TopologyWatcher
from gkm_operator.nodes import NODES

_LOG = logging.getLogger(__name__)


_LACKS_RIGHT = 'cannot patch resource "nodes"'
"""The words of RBAC in a refusal; a policy, which may refuse one node only, has others."""


@dataclass(slots=True)
class TreeSink:
    """A target that GKM writes the tree to, such as Kueue's Topology. `write` raises ApiError, Retry or Blocked.

    The kind is the first of `kinds` that the API server has; without any the sink needs no kind. `install` brings it.
    """

    name: str
    condition: str
    write: Callable[[Any], object]
    kinds: Sequence[Resource[Any]] = ()
    install: str = ""
    served: Resource[Any] | None = None
    finding: PartFinding = field(init=False)

    def __post_init__(self) -> None:
        self._set(TopologyReason.NOT_CHECKED, "the controllers have not checked the API server yet")

    @property
    def available(self) -> bool:
        """Return whether the kind of the sink is installed."""
        return self.served is not None or not self.kinds

    def check(self, api: Api) -> bool:
        """Ask the API server whether the kind is installed; return False if it does not answer."""
        if not self.kinds:
            return True
        before = self.served
        try:
            self.served = next((kind for kind in self.kinds if is_served(api, kind)), None)
        except ApiError as error:
            # An earlier kind is still written: that shows whether it exists.
            if not error.forbidden:
                self._fail(error)
                return False
            self.served = None
            self._set(TopologyReason.RIGHTS_MISSING, f"{error.message}: {install(Feature.TOPOLOGY)}")
        else:
            if self.served is None:
                kind = f"{self.kinds[0].plural}.{self.kinds[0].api_version.partition('/')[0]}"
                self._set(TopologyReason.KIND_MISSING, f"the API server has no {kind}: install {self.install}")
            elif before is None:
                self._set(TopologyReason.NOT_CHECKED, "the kind is there, and has not been compared yet")
        return True

    def reconcile(self) -> float | None:
        """Write the target and record the result; return the seconds until the next attempt, None if unknown.

        Raises:
            ApiError, Retry: another attempt may succeed. No message has content of an object.
        """
        if not self.available:
            return None
        try:
            self.write(self.served)
        except Blocked as blocked:
            self._set(blocked.reason, str(blocked), blocked.detail)
            return blocked.after
        except ApiError as error:
            raise self._fail(error) from error
        except Retry as error:
            self._set(TopologyReason.WRITING, str(error))
            raise
        self._set(TopologyReason.UP_TO_DATE)
        return None

    def _fail(self, error: ApiError) -> ApiError:
        """Record an error; return it for the log, without its message, which can have names of objects."""
        reason = TopologyReason.RIGHTS_MISSING if error.forbidden else TopologyReason.WRITE_FAILED
        message = "the API server does not respond" if error.status == NO_RESPONSE else "the API server refuses it"
        self._set(reason, f"{message} ({error.reason or error.status})", error.message)
        return ApiError(
            error.status, error.reason, f"{self.condition} in gkm-topology has the cause", error.retry_after
        )

    def _set(self, reason: TopologyReason, message: str = "", detail: str = "") -> None:
        self.finding = PartFinding(self.condition, reason, message, detail)


_INVALID = 422
# Kueue's finalizer kueue.x-k8s.io/resource-in-use; KAI has no finalizer.
_IN_USE = " (Kueue deletes it when no ResourceFlavor names it any more)"


def write_topology(api: Api, wanted: Mapping[str, Any], resource: Resource[SchedulerTopology]) -> bool:
    """Create the Topology or change its levels; return whether a request was needed.

    The fields of `wanted` are the same in all versions of its kind.

    Raises:
        Blocked: the API server refuses the change, or another writer has the object.
        ApiError: the API server refuses the request, or does not respond.
    """
    metadata, spec = wanted["metadata"], wanted["spec"]
    name = metadata["name"]
    labels = {WRITER_LABEL: WRITER}
    found = api.find(resource, name)
    if found is None:
        value = {**wanted, "apiVersion": resource.api_version, "metadata": metadata | {"labels": labels}}
        api.create(resource, value)
        metrics.TOPOLOGY_CHANGES.labels("Topology", "create").inc()
        return True
    if found.keys == tuple(level["nodeLabel"] for level in spec["levels"]):
        return False
    delete = f"kubectl delete topologies.{resource.api_version.partition('/')[0]} {name}{_IN_USE}"
    if (found.metadata.labels or {}).get(WRITER_LABEL) != WRITER:
        raise Blocked(
            TopologyReason.TOPOLOGY_BLOCKED,
            f"Topology {name} has other levels, and is not GKM's; configure another name, or delete it: {delete}",
        )
    # The list is replaced as a whole. Only people write aliases.
    aliases = found.aliases
    levels = [
        level | ({"alias": aliases[level["nodeLabel"]]} if level["nodeLabel"] in aliases else {})
        for level in spec["levels"]
    ]
    patch = {"metadata": {"resourceVersion": found.metadata.resource_version}, "spec": {"levels": levels}}
    try:
        api.merge(resource, name, patch)
    except ApiError as error:
        if error.status == _INVALID:
            raise Blocked(
                TopologyReason.TOPOLOGY_BLOCKED,
                f"the levels of Topology {name} cannot be changed; delete it, and GKM creates it anew: {delete}",
            ) from error
        raise
    metrics.TOPOLOGY_CHANGES.labels("Topology", "update").inc()
    return True


_SERVER_ERROR = 500
MAX_FAILURES = 20
"""Limit of nodes in a row whose labels fail with a server error; with more, the API server itself fails probably."""


class LabelWriter:
    """Writes topology labels of Nodes. Only one thread may use it; `pace` waits until the next request may be sent."""

    def __init__(self, api: Api, watcher: TopologyWatcher, *, pace: Callable[[], bool]) -> None:
        self._api = api
        self._watcher = watcher
        self._pace = pace

    def write(self, wanted: Callable[[], Mapping[str, Mapping[str, str]]]) -> int:
        """Write the labels of nodes that differ; return the number of requests.

        A pass takes minutes, so each node gets what `wanted` returns right before its request.

        Raises:
            ApiError: the API server does not respond, or fails for each of many nodes.
            Blocked: some nodes were refused, or the controllers may not label nodes.
            Retry: this process ends, or nodes have changed meanwhile.
        """
        refused: list[str] = []
        written = changed = failures = 0
        nodes = self._watcher.nodes.values()
        # By chance, so that nodes whose labels fail do not keep others from their turn.
        for node in random.sample(nodes, len(nodes)):
            if not difference(level_labels(node.labels), wanted().get(node.name, {})):
                continue
            if not self._pace():
                raise Retry("this process ends before it has written all labels of nodes")
            try:
                if self._label(node, wanted().get(node.name, {})):
                    written += 1
                    failures = 0
                else:
                    changed += 1
            except ApiError as error:
                failures += error.status >= _SERVER_ERROR
                if error.unavailable or failures == MAX_FAILURES:
                    raise
                refused.append(str(error))
        if written:
            _LOG.info("topology labels of nodes written", extra=fields(nodes=written, refused=len(refused)))
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
            if _LACKS_RIGHT in error.message:
                message = f"the controllers may not label nodes: {install(Feature.TOPOLOGY_LABELS)}"
                raise Blocked(TopologyReason.RIGHTS_MISSING, message, detail=error.message) from error
            raise
        metrics.TOPOLOGY_CHANGES.labels("Node", "update").inc()
        return True
