"""The controller of fabric conditions: a queue of nodes and of NVLink domains, and one request for each condition.

With `fabric.nodeTaint`, a node whose condition is False has a taint besides.

Runs in the leader only. All state is on the API server: a restart changes nothing.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from gkm.api.cliques import CLIQUE_LEVEL
from gkm.api.fabric_settings import Fabric
from gkm.api.features import Feature, install
from gkm.api.meta import API_VERSION
from gkm.api.topology_settings import Topology
from gkm.hoststate.pacing import Backoff, TokenBucket
from gkm.kube.api import Api, Object
from gkm.kube.controller import Controller, StartedWatch
from gkm.kube.errors import ApiError
from gkm.kube.index import Index
from gkm.kube.informers import Informers
from gkm.kube.reflector import Reflector
from gkm.kube.resources import HYPERNODES, Resource
from gkm.kube.resources import NODES as WHOLE_NODES
from gkm.kube.workqueue import WorkQueue
from gkm.topology.nodes import FABRIC_HEALTHY, Node, NodeCondition
from gkm.topology.trees.names import hypernode_name

from gkm_operator import metrics
from gkm_operator.fabric.conditions import (
    ReportedFabric,
    domain_condition,
    effects_of,
    wanted_condition,
    wanted_effects,
    with_effects,
)
from gkm_operator.nodes import NODES

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
NAME = "fabric"
FIELD_MANAGER = "gkm.io/fabric"
WORKERS = 2
WRITES_BURST, WRITE_SECONDS = 50, 0.02
"""Rate limit of writes: 50 at once, then 50 a second; the first conditions of 12,500 nodes take 4 minutes."""
CALM_SECONDS = 1.0
"""Seconds between a change of a node and the write of its domain, so that one write covers several nodes."""
DOMAIN_SECONDS = 300.0
"""Seconds after which a domain's condition is written again: its HyperNode may have been created since."""
BACKOFF = Backoff(0.5, 60.0)
FABRICS = Resource(API_VERSION, "NodeFabric", "nodefabrics", namespaced=False, type=ReportedFabric)
_DOMAIN = "domain/"
"""The prefix of keys of domains; no name of a node has a slash."""


class FabricController(Controller):
    """Writes the condition NVLinkFabricHealthy of Nodes and HyperNodes.

    It runs if `fabric.nodeConditions`; HyperNodes need `topology.hyperNodes`.
    """

    def __init__(self, api: Api, settings: Fabric, topology: Topology, *, informers: Informers) -> None:
        super().__init__(NAME, enabled=settings.node_conditions)
        self._api = api
        self._levels = [level.name for level in topology.levels]
        self._hashed = topology.hyper_nodes.hash_names
        self._effect = settings.node_taint
        self._has_domains = topology.hyper_nodes.enabled and CLIQUE_LEVEL in self._levels
        self._nodes = informers.of(NODES)
        self._fabrics = Reflector(api, FABRICS, self._fabric_changed)
        self._domains: Index[str, ReportedFabric] = Index(lambda fabric: (fabric.domain,), lambda fabric: fabric.name)
        self._bucket = TokenBucket(WRITES_BURST, WRITE_SECONDS)
        self.queue: WorkQueue[str] = WorkQueue(
            NAME, self.reconcile, workers=WORKERS, backoff=BACKOFF, observe=metrics.reconcile_recorder(NAME)
        )
        self.queues = [self.queue]

    def run(self) -> None:
        """Start to watch and write. A replica that does not lead watches Nodes too, and keeps no keys of them."""
        self._nodes.subscribe(self._node_changed)
        super().run()

    def reflectors(self) -> Sequence[StartedWatch]:
        """Return the watches of Nodes and NodeFabrics; writes begin after their lists are complete."""
        return (self._nodes, self._fabrics)

    def reconcile(self, key: str) -> float | None:
        """Write the condition of a Node or NVLink domain; return the seconds until the next write, None if none is due.

        Raises:
            ApiError: the API server refuses it, or does not respond.
            NotLeading: this process must not write any more.
        """
        if key.startswith(_DOMAIN):
            return self._reconcile_domain(key.removeprefix(_DOMAIN))
        node = self._nodes.get(key)
        if node is not None:
            wanted = wanted_condition(node, self._fabrics.get(key))
            if wanted != node.condition(FABRIC_HEALTHY):
                self._apply(NODES, _applied("v1", "Node", node.metadata.name, wanted, node.metadata.uid))
            if self._effect != "none":
                self._taint(node, wanted)
        return None

    def _taint(self, node: Node, condition: NodeCondition | None) -> None:
        """Add or remove the taint. The list of taints is one field, so all others are written back as they were read.

        A Node that changed in between is a conflict: the queue tries again.
        """
        now = effects_of(node.taints)
        effects = wanted_effects(condition, self._effect, now)
        if effects == now or self._stop.wait(self._bucket.reserve()):
            return
        with _hint(Feature.FABRIC_TAINTS):
            found = self._api.find(WHOLE_NODES, node.name)
            if found is None or found["metadata"]["uid"] != node.metadata.uid:
                return
            taints = with_effects(found["spec"].get("taints") or [], effects)
            metadata = {"resourceVersion": found["metadata"]["resourceVersion"]}
            self._api.merge(WHOLE_NODES, node.name, {"metadata": metadata, "spec": {"taints": taints}})

    def _reconcile_domain(self, domain: str) -> float | None:
        states = {
            node.name: state
            for fabric in self._domains.get(domain)
            if (node := self._nodes.get(fabric.name)) is not None
            and (state := wanted_condition(node, fabric)) is not None
        }
        wanted = domain_condition(states)
        if wanted is None:
            return None
        name = hypernode_name(CLIQUE_LEVEL, domain, domain, self._levels, hashed=self._hashed)
        self._apply(HYPERNODES, _applied(HYPERNODES.api_version, HYPERNODES.kind, name, wanted))
        return DOMAIN_SECONDS

    def _apply(self, resource: Resource[T], value: Object) -> None:
        """Apply a status, if its object is there and the same."""
        if self._stop.wait(self._bucket.reserve()):
            return
        try:
            with _hint(Feature.FABRIC_CONDITIONS):
                self._api.apply(resource, value, field_manager=FIELD_MANAGER, subresource="status")
        except ApiError as error:
            # A Node that was created anew has another uid: its own event follows.
            if not error.not_found and not error.conflict:
                raise

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        found = new or old
        if found is not None and (old is None or new is None or _read(old) != _read(new)):
            self.queue.add(found.name)
            self._add_domain(self._fabrics.get(found.name))

    def _fabric_changed(self, old: ReportedFabric | None, new: ReportedFabric | None) -> None:
        self._domains.change(old, new)
        for fabric in filter(None, (old, new)):
            self.queue.add(fabric.name)
            self._add_domain(fabric)

    def _add_domain(self, fabric: ReportedFabric | None) -> None:
        if self._has_domains and fabric is not None and fabric.domain:
            self.queue.add(_DOMAIN + fabric.domain, CALM_SECONDS)


def _read(node: Node) -> tuple[object, ...]:
    """Return the fields of a Node that a reconcile reads: other controllers need changes of other fields."""
    return node.metadata.uid, node.status.conditions, node.taints


@contextmanager
def _hint(feature: Feature) -> Iterator[None]:
    """Say how to install the rights of a feature where they are missing."""
    try:
        yield
    except ApiError as error:
        if error.forbidden:
            raise ApiError(error.status, error.reason, f"{error.message}: {install(feature)}") from error
        raise


def _applied(api_version: str, kind: str, name: str, wanted: NodeCondition | None, uid: str = "") -> Object:
    """Return what GKM applies: its condition, or no condition, which removes the one that it applied before."""
    metadata = {"name": name} | ({"uid": uid} if uid else {})
    conditions = [wanted] if wanted is not None else []
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "status": {"conditions": conditions}}
