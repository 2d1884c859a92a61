"""A node that changes its name, or is registered anew under the one it has, keeps its caches; its objects follow.

What was written under the old name may be written by no other node (agent-policy.yaml), so it stays until the old Node
is deleted and the garbage collector takes it. Whoever renames a node without deleting the old Node keeps an object that
nobody brings up to date; its gkm.io/lastUpdated says so.

What stays unproven here: that kubelet, which makes the Node, does so soon after a change of name, and that the pods of
the old Node, the agent's among them, are started again. Both are Kubernetes' own.
"""

from collections.abc import Iterator
from threading import Event

import pytest
from gkm.api.nodes import NodeCacheStatus, NodeStatus
from gkm.kube.resources import GKMCACHENODES, NODES
from gkm_agent.kubernetes.sinks import KubernetesStatusSink
from gkm_agent.kubernetes.source import KubernetesSource
from gkm_agent.report.objects import without_conditions
from gkm_agent.report.publisher import StatusPublisher
from support.agent.agent_on_api_server import Site, site
from support.agent.machine import Machine
from support.cluster.cluster import Cluster, KubectlFailed
from support.host.waiting import until
from support.kube.fake_api import FakeApi

NAMESPACE, OLD, NEW = "api-node-name", "api-name-old", "api-name-new"
READY = {"llama": "Ready"}
PATIENCE = 180.0


@pytest.fixture
def place(cluster: Cluster, machine: Machine) -> Iterator[Site]:
    with site(cluster, machine, NAMESPACE, OLD, NEW) as made:
        made.declare("llama")
        yield made


def works_as(place: Site, node: str) -> None:
    place.cluster.until(lambda: place.states(node) == READY, f"the cache is Ready on {node}", PATIENCE)


def test_under_another_name_the_caches_stay_and_the_objects_are_those_of_the_new_node(place: Site) -> None:
    place.issue_for(OLD)
    with place.agent(OLD):
        works_as(place, OLD)
    entry, pointer, written = place.entry(), place.pointer("llama"), place.object_of(OLD)
    place.machine.registry.requests.clear()

    place.issue_for(NEW)
    with place.agent(NEW) as agent:
        works_as(place, NEW)
        assert (place.entry(), place.pointer("llama")) == (entry, pointer)
        assert place.machine.registry.requests == []
        assert place.owners(NEW) == [(NEW, place.uid(NEW))]
        # What the old node said is not the new one's to change, and nothing of the agent tries to.
        assert place.object_of(OLD) == written
        assert not agent.heard("delete", "403")
        assert not agent.heard("apply", "403")

        place.cluster.objects.ask_to_delete("node", OLD)

        place.cluster.until(lambda: not place.object_of(OLD), "the old node's object goes with it", PATIENCE)
        assert place.states(NEW) == READY


def test_the_token_of_one_node_deletes_nothing_of_another(place: Site) -> None:
    place.issue_for(OLD)
    with place.agent(OLD):
        works_as(place, OLD)
    place.issue_for(NEW)
    kubeconfig = place.cluster.control_plane.kubeconfig("api-name-thief", {"tokenFile": str(place.token)})

    with pytest.raises(KubectlFailed, match=f"agent of node {NEW} must not write the object of node {OLD}"):
        place.cluster.kubectl("delete", "gkmcachenode", OLD, "--namespace", NAMESPACE, kubeconfig=kubeconfig)

    assert place.states(OLD) == READY


def test_a_node_that_is_registered_anew_owns_its_objects_again(place: Site) -> None:
    """The token is bound to the Node and dies with it: the agent needs the next one as well."""
    place.issue_for(OLD)
    with place.agent(OLD) as agent:
        works_as(place, OLD)
        entry, before = place.entry(), place.uid(OLD)
        place.cluster.objects.ask_to_delete("node", OLD)
        place.cluster.until(lambda: not place.object_of(OLD), "the object goes with its Node", PATIENCE)

        place.node(OLD)
        place.issue_for(OLD)

        works_as(place, OLD)
        assert place.uid(OLD) != before
        assert place.owners(OLD) == [(OLD, place.uid(OLD))]
        assert place.entry() == entry
        assert agent.process.popen.poll() is None


def test_an_object_that_is_still_there_gets_the_new_uid_of_its_node_at_once(api: FakeApi) -> None:
    """Without it the garbage collector takes the object, and until all is written again nobody knows of the node."""
    status = NodeStatus(caches={"llama": NodeCacheStatus(state="Ready")})
    publisher = StatusPublisher(KubernetesStatusSink(api, "node-1", lambda: source.node))
    source = KubernetesSource(api, "node-1", Event(), publisher.rewrite_all)
    source.start()
    publisher.start()
    try:
        assert source.wait(10)
        publisher.set({"ml-apps": status})
        assert publisher.flush(10)
        api.delete(NODES, "node-1")
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}}
        uid = api.create(NODES, node)["metadata"]["uid"]

        def owners() -> list[str]:
            found = api.get(GKMCACHENODES, "node-1", "ml-apps")
            return [owner.uid for owner in found.metadata.owner_references]

        until(lambda: owners() == [uid], "the new Node owns it")
        assert without_conditions(api.get(GKMCACHENODES, "node-1", "ml-apps").status) == status
    finally:
        publisher.stop(10)
        source.stop()
