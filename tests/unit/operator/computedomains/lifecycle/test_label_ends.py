"""ComputeDomains of a label that nothing needs any more, and those of a feature that was switched off."""

import pytest
from gkm_operator.computedomains.lifecycle import labels
from support.grove.objects import NAMESPACE
from support.operator.domains import DOMAINS, OFF, Process, World, owners
from support.operator.plans import PODS

JOB = "batch/v1 Job"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def process(world: World) -> Process:
    return Process(world.api)


def test_a_domain_that_no_pod_needs_is_released_though_its_workload_lives(world: World, process: Process) -> None:
    """A Deployment whose template names another domain at each rollout."""
    app = world.controller("apps/v1 Deployment", "app")
    for version in ("v1", "v2", "v3"):
        world.pod(version, version, owners=[app])
        world.settle(process)
        if version != "v3":
            world.api.delete(PODS, version, NAMESPACE)
    assert world.domains() == ["v1", "v2", "v3"]
    process.pass_time(labels.UNUSED_SECONDS)
    world.settle(process)
    assert world.domains() == ["v3"]
    assert ("app", "Normal", "ComputeDomainDeleted", "ComputeDomain v1 deleted") in world.events()


def test_a_pod_that_comes_back_in_time_finds_its_domain(world: World, process: Process) -> None:
    owner = world.controller("apps/v1 StatefulSet", "set")
    world.pod("set-0", "train", owners=[owner])
    world.settle(process)
    uid = world.domain("train")["metadata"]["uid"]
    for _ in range(3):
        world.api.delete(PODS, "set-0", NAMESPACE)
        world.settle(process)
        process.pass_time(labels.UNUSED_SECONDS - 30.0)
        world.pod("set-0", "train", owners=[owner])
        world.settle(process)
    assert world.domain("train")["metadata"]["uid"] == uid


def test_a_domain_that_pods_without_the_label_use_is_not_released(world: World, process: Process) -> None:
    world.pod("set-0", "train", owners=[world.controller("apps/v1 StatefulSet", "set")])
    world.settle(process)
    world.api.delete(PODS, "set-0", NAMESPACE)
    world.settle(process)
    world.use("train", 1)
    for seconds in (2 * labels.UNUSED_SECONDS, labels.UNUSED_SECONDS - 100.0):
        world.settle(process)
        process.pass_time(seconds)
    world.use("train", 0)
    for seconds in (labels.UNUSED_SECONDS - 30.0, 30.0):
        world.settle(process)
        assert "deletionTimestamp" not in world.domain("train")["metadata"]
        process.pass_time(seconds)
    world.settle(process)
    assert world.domains() == []


def test_with_the_switch_off_no_domain_is_created(world: World) -> None:
    """Admission adds no claim then: a domain would join the pods that were created before, and no other."""
    world.pod("p", "train")
    world.settle(Process(world.api, OFF))
    assert world.domains() == []


def test_a_domain_from_before_the_switch_went_off_goes_on_and_goes_with_its_last_workload(
    world: World, process: Process
) -> None:
    world.pod("job-0", "train", owners=[world.controller(JOB, "job")])
    world.settle(process)
    off = Process(world.api, OFF)
    world.pod("late-0", "train", owners=[world.controller(JOB, "late")])
    world.settle(off)
    assert owners(world) == [("Job", "job"), ("Job", "late")]
    for job in ("job", "late"):
        world.api.delete(world.kind(JOB), job, NAMESPACE)
    world.settle(off)
    assert world.domains() == []


def test_with_the_switch_off_a_deleted_domain_is_not_promised_again(world: World, process: Process) -> None:
    world.pod("job-0", "train", owners=[world.controller(JOB, "job")])
    world.settle(process)
    world.api.delete(DOMAINS, "train", NAMESPACE)
    world.settle(Process(world.api, OFF))
    assert world.domains() == []
    assert [event[2] for event in world.events()] == ["ComputeDomainCreated", "ComputeDomainDeleted"]


def test_a_pod_that_has_a_claim_to_a_domain_which_is_not_created_says_why_it_waits(world: World) -> None:
    claims = [{"name": "mnnvl-claim", "resourceClaimTemplateName": "train"}]
    world.pod("p", "train")
    world.api.merge(PODS, "p", {"spec": {"resourceClaims": claims}}, NAMESPACE)
    world.settle(Process(world.api, OFF))
    ((name, kind, reason, note),) = world.events()
    assert (name, kind, reason) == ("p", "Warning", "ComputeDomainFailed")
    assert note == (
        "Failed to create ComputeDomain for label gkm.io/compute-domain: train: network.autoMNNVLEnabled is off; "
        "remove the label and create the pods again, or have it switched on"
    )
