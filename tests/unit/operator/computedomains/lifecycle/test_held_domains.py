"""Domains that cannot go, because pods on dead nodes use them: their successors get another name."""

import re
from collections.abc import Callable

import pytest
from gkm.kube.errors import ApiError
from gkm_operator.computedomains.watcher import OVERDUE_SECONDS
from support.grove.objects import NAMESPACE
from support.operator.domains import DOMAINS, OURS, Process, World, grouped
from support.operator.plans import PODS, gpu_pod

HASHED = re.compile("test-pcs-0-[0-9a-f]{12}")


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def process(world: World) -> Process:
    return Process(world.api)


def start_pod(world: World, name: str = "test-pcs-0-worker-a", domain: str = "test-pcs-0") -> None:
    """Run a pod with the claim of a domain, which the mark states."""
    made = gpu_pod(name, "node-1", 8, namespace=NAMESPACE)
    made["metadata"]["finalizers"] = ["test/kubelet"]
    made["spec"]["resourceClaims"] = [{"name": "mnnvl-claim", "resourceClaimTemplateName": domain}]
    world.api.create(PODS, made)
    world.use(domain, 1)


def stop_pod(world: World, name: str = "test-pcs-0-worker-a") -> None:
    """Request the end of a pod; its node is dead, so it stays, Terminating."""
    world.api.delete(PODS, name, NAMESPACE)


def end_pod(world: World, name: str = "test-pcs-0-worker-a", domain: str = "test-pcs-0") -> None:
    world.api.merge(PODS, name, {"metadata": {"finalizers": None}}, NAMESPACE)
    world.use(domain, 0)


def scaled_in_and_out(world: World, process: Process) -> None:
    world.scale(0)
    stop_pod(world)
    world.settle(process)
    world.scale(1)


def created_again(world: World, _process: Process) -> None:
    world.delete_set()
    stop_pod(world)
    world.create_set()


def deleted_by_another(world: World, _process: Process) -> None:
    world.api.delete(DOMAINS, "test-pcs-0", NAMESPACE)
    stop_pod(world)


Change = Callable[[World, Process], None]
CHANGES = [scaled_in_and_out, created_again, deleted_by_another]


def used(world: World, process: Process) -> None:
    world.create_set()
    world.settle(process)
    start_pod(world)
    world.settle(process)


def living(world: World) -> list[str]:
    return [name for name in world.domains() if "deletionTimestamp" not in world.domain(name)["metadata"]]


@pytest.mark.parametrize("change", CHANGES)
def test_a_pod_on_a_dead_node_does_not_block_a_replica_for_ever(world: World, process: Process, change: Change) -> None:
    used(world, process)
    change(world, process)
    world.settle(process)
    assert living(world) == []
    process.pass_time(OVERDUE_SECONDS)
    world.settle(process)
    (name,) = living(world)
    assert HASHED.fullmatch(name)
    made = world.domain(name)
    assert made["metadata"]["labels"]["grove.io/podcliqueset-replica-index"] == "0"
    assert made["spec"]["channel"]["resourceClaimTemplate"]["name"] == name
    assert ("test-pcs", "Warning", "ComputeDomainHeld") in [event[:3] for event in world.events()]


@pytest.mark.parametrize("change", CHANGES)
def test_the_successor_stays_when_the_pod_has_ended(world: World, process: Process, change: Change) -> None:
    used(world, process)
    change(world, process)
    process.pass_time(OVERDUE_SECONDS)
    world.settle(process)
    successor = living(world)
    end_pod(world)
    world.settle(process)
    assert world.domains() == successor
    process.reconciler.enqueue_all()
    before = len(world.api.calls)
    assert process.work() == []
    assert world.api.calls[before:] == []


@pytest.mark.parametrize("change", CHANGES)
def test_pods_that_end_in_time_leave_the_name_to_the_next_domain(
    world: World, process: Process, change: Change
) -> None:
    used(world, process)
    change(world, process)
    world.settle(process)
    process.pass_time(OVERDUE_SECONDS - 20.0)
    process.reconciler.enqueue_all()
    world.settle(process)
    assert living(world) == []
    end_pod(world)
    world.settle(process)
    assert living(world) == world.domains() == ["test-pcs-0"]
    assert "ComputeDomainHeld" not in [event[2] for event in world.events()]


def test_a_domain_that_a_living_pod_uses_has_no_successor(world: World, process: Process) -> None:
    """The pods of a replica must not be in two domains: the one that is being deleted works."""
    used(world, process)
    start_pod(world, "alive")
    world.use("test-pcs-0", 2)
    deleted_by_another(world, process)
    process.pass_time(10 * OVERDUE_SECONDS)
    world.settle(process)
    assert world.domains() == ["test-pcs-0"]
    assert OURS in world.domain("test-pcs-0")["metadata"]["finalizers"]


def test_the_event_names_the_pods_and_says_what_to_do(world: World, process: Process) -> None:
    used(world, process)
    scaled_in_and_out(world, process)
    process.pass_time(OVERDUE_SECONDS)
    for _ in range(3):
        process.reconciler.enqueue_all()
        world.settle(process)
    (note,) = (event[3] for event in world.events() if event[2] == "ComputeDomainHeld")
    assert note == (
        "the deleted ComputeDomain test-pcs-0 cannot go, because pods use it that should have ended: a, b. Its "
        "successor has another name. If their node is dead, delete them with kubectl delete pod NAME --force"
    )


def test_sets_that_are_created_again_and_again_get_a_domain_each_time(world: World, process: Process) -> None:
    """A node dies under each of them."""
    names = set[str]()
    world.create_set("a" * 44, *grouped("g" * 63), annotations={})
    world.settle(process)
    for number in range(5):
        (name,) = living(world)
        names.add(name)
        start_pod(world, f"pod-{number}", name)
        world.settle(process)
        world.delete_set("a" * 44)
        stop_pod(world, f"pod-{number}")
        world.create_set("a" * 44, *grouped("g" * 63), annotations={})
        process.pass_time(OVERDUE_SECONDS)
        world.settle(process)
    assert len(names) == 5
    assert all(len(name) <= 63 for name in names)


def test_two_leaders_make_one_successor(world: World, process: Process) -> None:
    used(world, process)
    scaled_in_and_out(world, process)
    leaders = [process, Process(world.api)]
    for leader in leaders:
        leader.observe()
        leader.pass_time(OVERDUE_SECONDS + 60.0)
        leader.reconciler.enqueue_all()
    for leader in leaders:
        assert not any(isinstance(error, ApiError) for error in leader.work())
    world.settle(*leaders)
    assert len(living(world)) == 1
