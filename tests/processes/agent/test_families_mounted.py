"""Agent and CSI driver on one disk: a pod that names a family gets the member that the agent chose."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest
from gkm.hoststate import families, records
from gkm.hoststate.names import CacheRef
from gkm.images.reference import Reference
from gkm.images.registries import push
from support.agent.machine import HURRIED_AGENT, REPOSITORY, Machine, machine_in
from support.csi.driver import Client, driver
from support.csi.namespaces import MountNamespace, private_namespace
from support.csi.nodes import NodeFiles, node_files
from support.host.fork_server import ForkedProcess
from support.host.waiting import until
from support.images.archives import cache_image
from support.registry.clients import plain_client
from support.registry.push import Target
from support.registry.server import Registry
from support.sigstore.key_signatures import sign_bundle

pytestmark = pytest.mark.mounts
FAMILY = CacheRef("ml-apps", "llama")


@dataclass
class FamilyNode:
    """A machine with an agent without Kubernetes, and a driver that pods' volumes come to."""

    machine: Machine
    files: NodeFiles
    client: Client
    namespace: MountNamespace

    def member(self, generation: int, *, pinned: bool = False) -> None:
        """Declare a generation of the family, as the controllers do; its image has the tag of its number."""
        name = f"llama-{generation}"
        self.machine.declare(name, tag=str(generation), family=FAMILY.name, generation=generation, pinned=pinned)

    def mounted(self, volume: str) -> str:
        """Publish a volume that names the family; return the member that its record names."""
        target = self.files.target(volume)
        self.client.publish(volume, target, {"cacheName": FAMILY.name})
        record = records.load(self.files.layout, volume)
        assert record is not None
        assert record.requested == FAMILY
        assert any(self.namespace.inside(target).iterdir())
        return record.ref.name

    def wait_for(self, name: str, why: str) -> None:
        """Wait until the agent has chosen a member for that reason."""

        def is_chosen() -> bool:
            choice = families.load(self.files.layout, FAMILY)
            return choice is not None and (choice.member.name, choice.why) == (name, why)

        until(is_chosen, f"{name} to be chosen")

    def reported(self) -> dict[str, bool]:
        """Return {member: whether the node object calls it chosen}."""
        caches = self.machine.node_object()["status"]["caches"]
        return {name: cache.get("chosen", False) for name, cache in caches.items()}


def agent_of(machine: Machine) -> AbstractContextManager[ForkedProcess]:
    """Run the agent; kill it at the end."""
    return machine.running(machine.arguments("--health=127.0.0.1:0"), HURRIED_AGENT)


@pytest.fixture
def family_node(nvml: Path, registry: Registry) -> Iterator[FamilyNode]:
    with node_files() as files, private_namespace() as namespace:
        machine = machine_in(files.root, nvml, registry)
        (machine.manifests / "GKMCache-vector-add.yaml").unlink()
        client = plain_client(registry.host)
        second = push.image(client, Reference.parse(f"{registry.host}/{REPOSITORY}:2"), cache_image("second"))
        sign_bundle(Target(registry.host, REPOSITORY), second, machine.key)
        with driver(files, namespace) as running, Client(running.socket) as calls:
            yield FamilyNode(machine, files, calls, namespace)


def test_pods_get_the_newest_ready_member_and_follow_a_pin(family_node: FamilyNode) -> None:
    node = family_node
    node.member(1)
    with agent_of(node.machine) as agent:
        node.wait_for("llama-1", "generation 1, Ready")
        assert node.mounted("csi-1") == "llama-1"

        node.member(2)
        node.wait_for("llama-2", "generation 2, Ready")
        assert node.mounted("csi-2") == "llama-2"
        assert node.mounted("csi-1") == "llama-1"

        node.member(1, pinned=True)
        node.wait_for("llama-1", "pinned, Ready")
        assert node.mounted("csi-3") == "llama-1"
        until(lambda: node.reported() == {"llama-1": True, "llama-2": False}, "the node object to say so")
        agent.kill()

    assert node.mounted("csi-4") == "llama-1"
    node.member(1)
    with agent_of(node.machine):
        node.wait_for("llama-2", "generation 2, Ready")
        assert node.mounted("csi-5") == "llama-2"


def test_a_member_that_does_not_become_ready_takes_no_pod_from_the_one_that_is(family_node: FamilyNode) -> None:
    node = family_node
    node.member(1)
    node.machine.declare("llama-3", tag="missing", family=FAMILY.name, generation=3, pinned=True)
    with agent_of(node.machine):
        node.wait_for("llama-1", "generation 1, Ready")

        def has_failed() -> bool:
            pointer = node.machine.pointer(CacheRef("ml-apps", "llama-3"))
            return pointer is not None and pointer.state == "Failed"

        until(has_failed, "the other member to fail")
        assert node.mounted("csi-1") == "llama-1"
