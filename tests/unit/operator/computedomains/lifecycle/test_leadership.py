"""A process that another one has replaced as the leader writes no ComputeDomain, and deletes none that pods use."""

import pytest
from gkm.kube.elector import NotLeading
from gkm.kube.errors import ApiError
from support.grove.objects import NAMESPACE
from support.operator.domains import DOMAINS, NVIDIA, Process, World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def process(world: World) -> Process:
    return Process(world.api)


def test_a_half_released_domain_that_pods_use_meanwhile_is_not_deleted_by_a_watch_that_lags(
    world: World, process: Process
) -> None:
    """Another leader saw that the replica is required again; this one was suspended between its read and its DELETE."""
    world.create_set()
    world.settle(process)
    world.api.merge(DOMAINS, "test-pcs-0", {"metadata": {"finalizers": [NVIDIA]}}, NAMESPACE)
    world.scale(0)
    process.observe()
    world.use("test-pcs-0", 4)
    (error,) = process.work()
    assert isinstance(error, ApiError)
    assert error.conflict
    assert "deletionTimestamp" not in world.domain("test-pcs-0")["metadata"]
    assert [event[2] for event in world.events()] == ["ComputeDomainCreated"]


@pytest.mark.parametrize("writes", range(4))
def test_a_process_that_ceases_to_lead_writes_nothing_more(world: World, process: Process, writes: int) -> None:
    world.create_set()
    world.settle(process)
    world.scale(0)
    world.create_set("the-next", replicas=8)
    before = len(world.writes())
    process.leads = lambda: len(world.writes()) < before + writes
    process.observe()
    assert process.work() != []
    assert len(world.writes()) == before + writes


def test_a_process_that_does_not_lead_gives_a_label_no_domain_and_no_owners(world: World, process: Process) -> None:
    world.pod("p", "train")
    world.settle(process)
    process.leads = lambda: False
    world.pod("p2", "train")
    process.observe()
    assert process.work() == []
    process.pass_time(2.0)
    world.pod("q", "other")
    before = world.writes()
    process.observe()
    assert [type(error) for error in process.work()] == [NotLeading] * 2
    assert world.writes() == before
