"""The conditions of a group about NVLink: the readiness of its ComputeDomain, and the result of its test."""

from collections.abc import Callable

import pytest
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS
from gkm_operator.taskgroups.members import JOB, GroupMember, watched
from gkm_operator.taskgroups.observer import job_messages
from support.operator.group_witness import DOMAINS, JOBS, NAMESPACE, RAW_POOLS, RAW_TEMPLATES, an_object
from support.operator.plans import PODS
from support.operator.taskgroups import Process, World, settled

CM = an_object(CONFIGMAPS, "files-{{ WF_GROUP_NAME }}", data={"a": "b"})


READINESS = (
    '{"type":"MNNVLReady","status":"%s","reason":"%s","message":"why","lastTransitionTime":"2026-03-01T12:00:00Z"}'
)


def test_the_readiness_of_the_compute_domain_is_that_of_the_group(world: World) -> None:
    uid = world.group()
    process = settled(world)
    assert world.condition("MNNVLReady") == ("", "", "")
    for status, reason in (("False", "NodesNotReady"), ("True", "AllNodesReady")):
        annotations = {"gkm.io/mnnvl-ready": READINESS % (status, reason)}
        world.api.merge(DOMAINS, f"domain-{uid}", {"metadata": {"annotations": annotations}}, NAMESPACE)
        world.settle(process)
        assert world.condition("MNNVLReady") == (status, reason, "why")
    before = world.api._version
    world.settle(process)
    assert world.api._version == before


@pytest.mark.parametrize("text", ["", "{", '{"status":"True"}', "x" * (1 << 17)])
def test_an_invalid_readiness_is_ignored(text: str, world: World) -> None:
    uid = world.group()
    process = settled(world)
    annotations = {"gkm.io/mnnvl-ready": text}
    world.api.merge(DOMAINS, f"domain-{uid}", {"metadata": {"annotations": annotations}}, NAMESPACE)
    world.settle(process)
    assert world.condition("MNNVLReady") == ("", "", "")


def nvlink_world() -> tuple[World, Process]:
    world = World(CM)
    job = an_object(JOBS, "nccl-{{ WF_GROUP_NAME }}", spec={"template": {}})
    world.template("nccl", job, nvlinkTest={"minBandwidthGBps": 300})
    world.api.merge(RAW_POOLS, "pool", {"spec": {"commonGroupTemplates": ["t0", "nccl"]}})
    world.group()
    process = Process(world)
    world.settle(process)
    return world, process


def pod_of_test(world: World, name: str, message: str, **owner: object) -> None:
    """Create a pod that ended with a message, with the label of the test's Job; its owner is as in Kubernetes."""
    uid = world.api.get(JOBS, "nccl-g", NAMESPACE)["metadata"]["uid"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "nccl-g", "uid": uid, "controller": True} | owner
    body = an_object(PODS, name)
    labels = {"batch.kubernetes.io/controller-uid": uid}
    body["metadata"] |= {"namespace": NAMESPACE, "labels": labels, "ownerReferences": [owner]}
    world.api.create(PODS, body)
    states = [{"name": "nccl", "state": {"terminated": {"exitCode": 0, "message": message}}}]
    pod_status = {"status": {"phase": "Succeeded", "containerStatuses": states}}
    world.api.apply(PODS, body | pod_status, field_manager="kubelet", subresource="status")


def complete(world: World, condition: str, message: str) -> None:
    pod_of_test(world, "nccl-g-x", message)
    status = {"status": {"conditions": [{"type": condition, "status": "True"}]}}
    meta = {"name": "nccl-g", "namespace": NAMESPACE}
    world.api.apply(JOBS, {"metadata": meta} | status, field_manager="jobs", subresource="status")


@pytest.mark.parametrize(
    ("condition", "message", "status", "reason"),
    [
        ("Complete", "# Avg bus bandwidth    : 376.496", "True", "BandwidthReached"),
        ("Complete", "# Avg bus bandwidth    : 37.6", "False", "BandwidthTooLow"),
        ("Complete", "done", "Unknown", "NoResult"),
        ("Failed", "# Avg bus bandwidth    : 376.496", "False", "TestFailed"),
    ],
)
def test_a_job_of_nccl_tests_verifies_nvlink(condition: str, message: str, status: str, reason: str) -> None:
    world, process = nvlink_world()
    assert world.condition("NVLinkVerified")[:2] == ("Unknown", "TestRunning")
    world.api.merge(RAW_TEMPLATES, "nccl", {"spec": {"nvlinkTest": {"minBandwidthGBps": 1}}})
    complete(world, condition, message)
    world.settle(process)
    assert world.condition("NVLinkVerified")[:2] == (status, reason)
    assert world.events() == [("Normal" if status == "True" else "Warning", reason)]
    world.api.delete(JOBS, "nccl-g", NAMESPACE)  # its time to live is over
    world.settle(process)
    assert world.condition("NVLinkVerified")[:2] == (status, reason)
    world.delete()
    world.settle(process)
    assert world.groups() == []
    world.check()


SLOW = "# Avg bus bandwidth : 1"


@pytest.mark.parametrize("controller", [False, True])
def test_a_pod_that_only_has_the_label_of_the_job_is_not_read(*, controller: bool) -> None:
    world, process = nvlink_world()
    another = world.api.get(CONFIGMAPS, "files-g", NAMESPACE)["metadata"]["uid"]
    pod_of_test(world, "forged", SLOW, **({"uid": another} if controller else {"controller": False}))
    complete(world, "Complete", "# Avg bus bandwidth : 376")
    world.settle(process)
    assert world.condition("NVLinkVerified")[:2] == ("True", "BandwidthReached")


def refused_pods(verb: str, plural: str) -> ApiError | None:
    return ApiError(403, "Forbidden", "pods is forbidden\x1b[0m") if (verb, plural) == ("list", "pods") else None


def lists_of_pods(world: World) -> int:
    return sum(call[:2] == ("list", "pods") for call in world.api.calls)


def test_pods_that_cannot_be_read_are_a_condition_until_they_can() -> None:
    world, process = nvlink_world()
    complete(world, "Complete", "# Avg bus bandwidth : 376")
    process.observe()
    world.api.fault = refused_pods
    before = lists_of_pods(world)
    for _ in range(5):
        process.work()
        process.observe("jobs", "taskgroups")
        process.controller.queue.add((NAMESPACE, "g"))
    assert lists_of_pods(world) == before + 1
    status, reason, message = world.condition("NVLinkVerified")
    assert (status, reason) == ("Unknown", "Retrying")
    assert message.startswith("the Job of the test or its pods cannot be read: pods is forbidden")
    assert message.isprintable()
    world.settle(process)
    assert lists_of_pods(world) > before + 1
    world.api.fault = lambda _verb, _plural: None
    world.settle(process)
    assert world.condition("NVLinkVerified")[:2] == ("True", "BandwidthReached")


@pytest.mark.parametrize("end", [World.end, World.delete])
def test_pods_that_cannot_be_read_do_not_delay_the_end(end: Callable[[World], None]) -> None:
    world, process = nvlink_world()
    complete(world, "Complete", "# Avg bus bandwidth : 376")
    process.observe("jobs")
    world.api.fault = refused_pods
    end(world)
    process.observe("taskgroups")
    before = lists_of_pods(world)
    for _ in range(3):
        process.work()
        world.act()
        process.observe("jobs", "configmaps", "taskgroups")
    assert world.objects() == []
    assert lists_of_pods(world) == before


def test_pods_of_a_test_are_read_in_small_pages_and_at_most_a_hundred() -> None:
    world, _ = nvlink_world()
    for number in range(101):
        pod_of_test(world, f"p{number:03}", f"message {number}")
    job = world.api.get(watched(JOBS), "nccl-g", NAMESPACE)
    before = lists_of_pods(world)
    assert job_messages(world.api, GroupMember.of(JOB, job)) == [f"message {number}" for number in range(100)]
    assert lists_of_pods(world) == before + 10  # pages of ten whole pods, of up to 1.5 MB each


def reads_of_jobs(world: World) -> int:
    return sum(call[:2] == ("get", "jobs") for call in world.api.calls)


def delete_test(world: World) -> None:
    world.api.delete(JOBS, "nccl-g", NAMESPACE)


def replace_test(world: World) -> None:
    """Delete the Job, and create another one of its name by hand."""
    delete_test(world)
    world.own(JOBS, "nccl-g", spec={"template": {}})


@pytest.mark.parametrize("new_leader", [False, True])
@pytest.mark.parametrize("go", [delete_test, replace_test])
def test_a_job_that_goes_before_its_end_is_no_test_that_runs(
    go: Callable[[World], None],
    *,
    new_leader: bool,
) -> None:
    world, process = nvlink_world()
    go(world)
    world.settle(Process(world) if new_leader else process)
    status, reason, message = world.condition("NVLinkVerified")
    assert (status, reason) == ("Unknown", "NoResult")
    assert message == "the Job of the test was deleted before its end was seen: create another group"
    assert world.events() == [("Warning", "NoResult")]
    before = reads_of_jobs(world)
    world.settle(process)
    assert reads_of_jobs(world) == before


def test_a_running_job_is_read_only_while_no_watch_shows_it() -> None:
    world, process = nvlink_world()
    before = reads_of_jobs(world)
    world.settle(process)
    assert reads_of_jobs(world) == before
    labels = {"gkm.io/task-group": None, "gkm.io/task-group-uid": None}
    world.api.merge(JOBS, "nccl-g", {"metadata": {"labels": labels}}, NAMESPACE)
    for _ in range(5):
        process.run()
    assert reads_of_jobs(world) == before + 1
    assert world.condition("NVLinkVerified")[:2] == ("Unknown", "TestRunning")
    complete(world, "Complete", "# Avg bus bandwidth : 376")
    world.seconds += 31.0
    process.run()
    assert world.condition("NVLinkVerified")[:2] == ("True", "BandwidthReached")
