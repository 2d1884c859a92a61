"""Objects of which the watch holds an outline only (gkm.kube.memory): what it lacks is read when it is needed."""

import pytest
from support.grove.objects import NAMESPACE, clique
from support.operator.domains import DOMAINS, ENROLLED, Process, World, owners

MANY = 64
FOREIGN = [f"example.test/finalizer-{number}" for number in range(MANY)]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def process(world: World) -> Process:
    return Process(world.api)


def oversized(process: Process, name: str) -> str:
    found = process.watcher.domains.get(name, NAMESPACE)
    assert found is not None
    return found.metadata.oversized.partition(":")[0]


def test_a_set_with_many_cliques_has_its_domains(world: World, process: Process) -> None:
    world.create_set("test-pcs", *(clique(f"clique-{number}") for number in range(MANY)), replicas=2)
    world.settle(process)
    assert world.domains() == ["test-pcs-0", "test-pcs-1"]
    held = process.watcher.sets.get("test-pcs", NAMESPACE)
    assert held is not None
    assert (held.metadata.oversized.partition(":")[0], held.cliques) == ("spec.template.cliques", ())
    world.scale(1)
    world.settle(process)
    assert world.domains() == ["test-pcs-0"]


def test_a_domain_with_many_owners_gets_more_and_loses_none(world: World, process: Process) -> None:
    for number in range(MANY):
        world.pod(f"pod-{number}", "train")
    world.settle(process)
    assert oversized(process, "train") == "metadata.ownerReferences"
    world.pod("pod-of-later", "train")
    world.settle(process)
    assert len(owners(world)) == MANY + 1


def test_a_domain_with_many_finalizers_loses_that_of_gkm_only(world: World, process: Process) -> None:
    world.create_set(annotations=ENROLLED)
    world.settle(process)
    ours: list[str] = world.domain("test-pcs-0")["metadata"]["finalizers"]
    change = {"metadata": {"finalizers": [*ours, *FOREIGN]}}
    world.api.merge(DOMAINS, "test-pcs-0", change, NAMESPACE)
    world.scale(0)
    process.observe()
    assert oversized(process, "test-pcs-0") == "metadata.finalizers"
    process.work()
    left = world.domain("test-pcs-0")["metadata"]["finalizers"]
    assert [one for one in left if one.startswith("example.test/")] == FOREIGN
    assert "grove.io/computedomain-finalizer" not in left
