"""ComputeDomains that pods name by a label: created for them, owned by their workloads, never taken from a user."""

import pytest
from gkm.kube.errors import ApiError
from gkm_operator.computedomains.lifecycle import labels
from gkm_operator.computedomains.presence import Presence
from support.grove.objects import NAMESPACE, claim_template, compute_domain
from support.operator.domains import (
    DOMAINS,
    NVIDIA,
    OURS,
    TEMPLATES,
    Process,
    World,
    owners,
)
from support.operator.plans import PODS

JOB = "batch/v1 Job"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def process(world: World) -> Process:
    return Process(world.api)


def test_the_first_pod_with_the_label_gets_a_domain_owned_by_its_job(world: World, process: Process) -> None:
    job = world.controller(JOB, "job")
    world.pod("job-0", "train", owners=[job])
    process.observe()
    process.work()
    found = world.domain("train")
    assert found["spec"] == {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": "train"}}}
    meta = found["metadata"]
    assert meta["labels"]["gkm.io/compute-domain"] == "train"
    assert meta["labels"]["gkm.io/written-by"] == "gkm"
    assert not any(key.startswith(("app.kubernetes.io/managed-by", "grove.io/")) for key in meta["labels"])
    assert meta["finalizers"] == [OURS]
    assert meta["ownerReferences"] == [{key: value for key, value in job.items() if key != "controller"}]
    assert world.events() == [("job", "Normal", "ComputeDomainCreated", "ComputeDomain train created")]


def test_a_pod_that_came_while_domains_were_unavailable_gets_its_domain_when_they_are_back(
    world: World, process: Process
) -> None:
    """Only a pod names it: there is no set and no domain whose reconcile could follow the kind's return."""
    available, process.reconciler.presence = process.reconciler.presence, Presence(message="the CRD is not installed")
    for name in ("train", "gone"):
        world.pod(f"{name}-0", name)
    world.settle(process)
    world.api.delete(PODS, "gone-0", NAMESPACE)
    world.settle(process)
    assert world.domains() == []
    process.reconciler.presence = available
    process.reconciler.enqueue_all()
    process.pass_time(60.0)
    world.settle(process)
    assert world.domains() == ["train"]


def test_a_domain_of_a_user_that_goes_makes_place_for_the_one_of_the_label(world: World, process: Process) -> None:
    """Pods that wait do not change by themselves."""
    world.api.create(DOMAINS, compute_domain("train"))
    world.pod("waits", "train")
    world.settle(process)
    assert "gkm.io/written-by" not in world.domain("train")["metadata"].get("labels", {})
    world.api.delete(DOMAINS, "train", NAMESPACE)
    world.settle(process)
    assert world.domain("train")["metadata"]["labels"]["gkm.io/written-by"] == "gkm"


def test_workloads_that_come_later_become_owners(world: World, process: Process) -> None:
    first = world.controller(JOB, "first")
    world.pod("first-0", "train", owners=[first])
    world.settle(process)
    world.pod("bare", "train")
    world.pod("second-0", "train", owners=[world.controller(JOB, "second")])
    world.settle(process)
    assert owners(world) == [("Job", "first"), ("Job", "second"), ("Pod", "bare")]
    world.api.delete(world.kind(JOB), "first", NAMESPACE)
    world.settle(process)
    assert owners(world) == [("Job", "second"), ("Pod", "bare")]


def test_the_domain_goes_with_its_last_workload(world: World, process: Process) -> None:
    world.pod("job-0", "train", owners=[world.controller(JOB, "job")])
    world.settle(process)
    world.use("train", 1)
    world.api.delete(world.kind(JOB), "job", NAMESPACE)
    world.settle(process)
    assert world.domain("train")["metadata"]["finalizers"] == [NVIDIA]
    world.use("train", 0)
    world.settle(process)
    assert world.domains() == []
    assert [event[2] for event in world.events()] == ["ComputeDomainCreated"]


def test_the_domain_stays_while_its_workload_has_no_pods(world: World, process: Process) -> None:
    world.pod("set-0", "train", owners=[world.controller("apps/v1 StatefulSet", "set")])
    world.settle(process)
    uid = world.domain("train")["metadata"]["uid"]
    world.api.delete(PODS, "set-0", NAMESPACE)
    world.settle(process)
    assert world.domain("train")["metadata"]["uid"] == uid


def test_a_lost_domain_is_created_again(world: World, process: Process) -> None:
    world.pod("job-0", "train", owners=[world.controller(JOB, "job")])
    world.settle(process)
    uid = world.domain("train")["metadata"]["uid"]
    world.api.delete(DOMAINS, "train", NAMESPACE)
    world.settle(process)
    assert world.domain("train")["metadata"]["uid"] != uid
    assert ("job", "Warning", "ComputeDomainLost") in [event[:3] for event in world.events()]


def test_a_domain_of_the_user_is_used_as_it_is(world: World, process: Process) -> None:
    made = world.api.create(DOMAINS, compute_domain("train"))
    world.nvidia_runs = False
    world.pod("job-0", "train", owners=[world.controller(JOB, "job")])
    world.settle(process)
    world.api.delete(PODS, "job-0", NAMESPACE)
    world.settle(process)
    assert world.domain("train") == made
    assert world.events() == []


def test_the_domain_of_a_set_is_not_changed_by_a_label(world: World, process: Process) -> None:
    world.create_set()
    world.settle(process)
    before = world.domain("test-pcs-0")
    world.pod("guest", "test-pcs-0")
    world.settle(process)
    assert world.domain("test-pcs-0") == before


def test_a_claim_template_of_that_name_is_reported(world: World, process: Process) -> None:
    world.api.create(TEMPLATES, claim_template("train", "example.com"))
    world.pod("p", "train")
    process.observe()
    assert len(process.work()) == 1
    assert world.domains() == []
    ((name, kind, reason, note),) = world.events()
    assert (name, kind, reason) == ("p", "Warning", "ComputeDomainFailed")
    assert note == (
        "Failed to create ComputeDomain for label gkm.io/compute-domain: train: other ComputeDomains or "
        "ResourceClaimTemplates of namespace team have the name train; delete or rename them"
    )


def test_an_orphaned_domain_goes(world: World, process: Process) -> None:
    world.pod("job-0", "train", owners=[world.controller(JOB, "job")])
    world.settle(process)
    world.api.merge(DOMAINS, "train", {"metadata": {"ownerReferences": None}}, NAMESPACE)
    world.api.merge(PODS, "job-0", {"metadata": {"ownerReferences": None, "labels": None}}, NAMESPACE)
    world.settle(process)
    assert world.domains() == []


def test_a_deleted_domain_works_until_its_pods_have_ended(world: World, process: Process) -> None:
    world.pod("job-0", "train", owners=[world.controller(JOB, "job")])
    world.settle(process)
    world.use("train", 1)
    world.api.delete(DOMAINS, "train", NAMESPACE)
    world.settle(process)
    old = world.domain("train")["metadata"]
    assert old["finalizers"] == [OURS, NVIDIA]
    world.use("train", 0)
    world.settle(process)
    assert world.domain("train")["metadata"]["uid"] != old["uid"]


def test_at_most_256_workloads_own_a_domain(world: World, process: Process) -> None:
    for number in range(labels.MAX_OWNERS + 10):
        world.pod(f"p{number:03}", "train")
    world.settle(process)
    assert len(owners(world)) == labels.MAX_OWNERS
    world.pod("one-more", "train")
    world.settle(process)
    assert len(owners(world)) == labels.MAX_OWNERS


def test_no_more_controllers_are_read_than_can_own_a_domain(world: World, process: Process) -> None:
    """A reconcile is sequential, and two workers serve a namespace: a user decides how many Jobs have the label."""
    for number in range(labels.MAX_OWNERS + 10):
        world.pod(f"p{number:03}", "train", owners=[world.controller(JOB, f"job-{number:03}")])
    world.settle(process)
    assert len(owners(world)) == labels.MAX_OWNERS
    read = {call[2] for call in world.api.calls if call[:2] == ("get", "jobs")}
    assert read == {f"job-{number:03}" for number in range(labels.MAX_OWNERS)}


def test_a_second_reconcile_sends_no_request(world: World, process: Process) -> None:
    world.pod("job-0", "train", owners=[world.controller(JOB, "job")])
    world.settle(process)
    process.observe()
    process.reconciler.enqueue_all()
    process.work()
    before = len(world.api.calls)
    process.reconciler.enqueue_all()
    assert process.work() == []
    assert world.api.calls[before:] == []


def test_a_passing_error_about_a_controller_is_retried(world: World, process: Process) -> None:
    world.pod("job-0", "train", owners=[world.controller(JOB, "job")])
    process.observe()
    world.api.fault = lambda verb, plural: ApiError(500, "", "") if (verb, plural) == ("get", "jobs") else None
    assert len(process.work()) == 1
    world.api.fault = lambda _verb, _plural: None
    world.settle(process)
    assert owners(world) == [("Job", "job")]


def test_the_template_of_the_domain_is_its_own(world: World, process: Process) -> None:
    world.pod("p", "train")
    world.settle(process)
    template = world.api.get(TEMPLATES, "train", NAMESPACE)
    assert template["metadata"]["labels"][NVIDIA] == world.domain("train")["metadata"]["uid"]


def test_owners_are_written_at_most_every_two_seconds(world: World, process: Process) -> None:
    """Each bare pod is an owner, and NVIDIA's controller reconciles ten times a second over all domains."""
    world.pod("first", "train")
    world.settle(process)
    process.pass_time(2.0)
    before = len(world.writes())
    for number in range(30):  # six seconds
        world.pod(f"p{number:02}", "train")
        process.observe()
        assert process.work() == []
        process.pass_time(0.2)
    world.settle(process)
    patches = [call for call in world.writes()[before:] if call[:2] == ("merge", "computedomains")]
    assert 2 <= len(patches) <= 4
    assert len(owners(world)) == 31
