"""Shows the cluster to the providers: HyperNodes of all sources, Nodes, and what agents report of them."""

from collections.abc import Mapping
from threading import Lock

from gkm.api.hypernodes import HyperNodeObject
from gkm.topology.hypernode_objects import value
from gkm.topology.hypernodes import Member
from gkm.topology.nodes import Node
from gkm.topology.providers import ClusterNode

from gkm_operator.hypernodes.objects import WatchedFabric
from gkm_operator.hypernodes.providers.mailbox import ProvidersView
from gkm_operator.hypernodes.providers.messages import AgentReport, Kind
from gkm_operator.hypernodes.watcher import TopologyWatcher


def feed(view: ProvidersView, watcher: TopologyWatcher) -> None:
    """Publish every change that `watcher`, which has not started, observes from now on."""
    # A Node is published by the threads of two watches, and the one that reads last must publish last.
    order = Lock()

    def publish_node(name: str) -> None:
        with order:
            _publish_node(view, watcher, name)

    def node_changed(old: Node | None, new: Node | None) -> None:
        if (old is None or new is None) and (node := new or old) is not None:
            publish_node(node.name)

    def fabric_changed(old: WatchedFabric | None, new: WatchedFabric | None) -> None:
        if (fabric := new or old) is None:
            return
        name = fabric.metadata.name
        if old is None or new is None or old.guids != new.guids:
            publish_node(name)
        _publish_reports(view, name, _reports(old), _reports(new))

    def hypernode_changed(old: HyperNodeObject | None, new: HyperNodeObject | None) -> None:
        if new is not None:
            view.publish([value(new)])
        elif old is not None:
            view.publish([], [Member("HyperNode", old.name)])

    watcher.node_changed.append(node_changed)
    watcher.fabric_changed.append(fabric_changed)
    watcher.hypernode_changed.append(hypernode_changed)


def _publish_node(view: ProvidersView, watcher: TopologyWatcher, name: str) -> None:
    if watcher.nodes.get(name) is None:
        view.publish([], [Member("Node", name)])
        return
    fabric = watcher.fabrics.get(name)
    view.publish([ClusterNode(name, fabric.guids if fabric is not None else ())])


def _publish_reports(view: ProvidersView, name: str, old: Mapping[Kind, bytes], new: Mapping[Kind, bytes]) -> None:
    changed = [AgentReport(kind, name, data) for kind, data in new.items() if old.get(kind) != data]
    view.publish(changed, [(kind, name) for kind in old if kind not in new])


def _reports(fabric: WatchedFabric | None) -> Mapping[Kind, bytes]:
    return {"Ports": fabric.ports, "Neighbors": fabric.neighbors} if fabric is not None else {}
