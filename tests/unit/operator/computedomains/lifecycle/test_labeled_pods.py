"""Which pods with the label get a ComputeDomain by it: those that request GPUs and have no other domain."""

from dataclasses import replace

import pytest
from gkm_operator.computedomains.claims import UNSEEN_SECONDS
from gkm_operator.computedomains.objects import Workload, WorkloadKind
from gkm_operator.computedomains.presence import Presence
from gkm_operator.mnnvl.required import alternative_name, domain_name
from support.grove.objects import NAMESPACE, claim_template
from support.grove.tables import table
from support.operator.domains import (
    CLAIMS,
    DOMAINS,
    TEMPLATES,
    Process,
    World,
    resource_claim,
)
from support.operator.plans import PODS

JOB = "batch/v1 Job"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def process(world: World) -> Process:
    return Process(world.api)


def test_a_pod_without_gpus_gets_none(world: World, process: Process) -> None:
    world.pod("p", "train", 0)
    world.settle(process)
    assert world.domains() == []


OF_GROVE = {
    "grove.io/podclique": "test-pcs-0-worker",
    "app.kubernetes.io/part-of": "test-pcs",
    "grove.io/podcliqueset-replica-index": "0",
}


@table(
    "annotations, label",
    [
        ("of no set that is shown", None, "test-pcs-0"),
        ("of a set that is not enrolled", {}, "test-pcs-0"),
        ("of a set that withdrew", {"grove.io/mnnvl-group": "none"}, "test-pcs-0"),
        ("another name than that of a domain of its set", {"grove.io/auto-mnnvl": "enabled"}, "train"),
        ("a name of a domain of another replica", {"grove.io/auto-mnnvl": "enabled"}, "test-pcs-7"),
        ("a name of another group", {"grove.io/mnnvl-group": "a"}, "test-pcs-0-b"),
    ],
)
def test_a_label_of_the_user_on_a_pod_of_grove_is_one_like_any_other(
    world: World, process: Process, annotations: dict[str, str] | None, label: str
) -> None:
    if annotations is not None:
        world.create_set(annotations=annotations)
    world.settle(process)
    before = world.domains()
    world.pod("p", label, labels=OF_GROVE)
    world.settle(process)
    assert set(world.domains()) - set(before) == {label}


@table(
    "annotations, label",
    [
        ("of a replica", {"grove.io/auto-mnnvl": "enabled"}, "test-pcs-0"),
        ("of a group", {"grove.io/mnnvl-group": "a"}, "test-pcs-0-a"),
        ("under its other name", {"grove.io/mnnvl-group": "a"}, alternative_name("test-pcs", 0, "a")),
        ("under a name with a hash", {"grove.io/mnnvl-group": "a" * 60}, domain_name("test-pcs", 0, "a" * 60)),
    ],
)
def test_a_pod_of_grove_makes_no_domain_in_the_place_of_one_of_its_set(
    world: World, process: Process, annotations: dict[str, str], label: str
) -> None:
    world.create_set(annotations=annotations)
    world.pod("p", label, labels=OF_GROVE)
    process.observe()
    assert not [workload for workload in process.keys if workload.kind is WorkloadKind.LABEL]
    process.reconciler.reconcile(Workload(WorkloadKind.LABEL, NAMESPACE, label))
    assert world.domains() == []


def test_a_pod_of_grove_in_a_domain_of_any_set_is_no_work_for_its_label(world: World, process: Process) -> None:
    world.create_set()
    world.settle(process)
    world.pod("p", "test-pcs-0", labels=OF_GROVE | {"app.kubernetes.io/part-of": "another"})
    process.observe()
    assert not [workload for workload in process.keys if workload.kind is WorkloadKind.LABEL]


def test_a_pod_with_a_channel_of_its_own_gets_none(world: World, process: Process) -> None:
    world.api.create(TEMPLATES, claim_template("own", "compute-domain-default-channel.nvidia.com"))
    world.pod("p", "train")
    claims = [{"name": "channel", "resourceClaimTemplateName": "own"}]
    world.api.merge(PODS, "p", {"spec": {"resourceClaims": claims}}, NAMESPACE)
    world.settle(process)
    assert world.domains() == []


def test_a_pod_that_claims_gpus_by_a_template_gets_one(world: World, process: Process) -> None:
    world.api.create(TEMPLATES, claim_template("gpus", "gpu.nvidia.com"))
    world.pod("p", "train", 0)
    claims = [{"name": "gpus", "resourceClaimTemplateName": "gpus"}]
    world.api.merge(PODS, "p", {"spec": {"resourceClaims": claims}}, NAMESPACE)
    world.settle(process)
    assert world.domains() == ["train"]


@pytest.mark.parametrize("late", [False, True], ids=["before the pod", "after the pod"])
def test_a_pod_that_claims_gpus_by_the_name_of_a_claim_gets_one(world: World, process: Process, *, late: bool) -> None:
    claims = [{"name": "gpus", "resourceClaimName": "gpus"}]
    if not late:
        world.api.create(CLAIMS, resource_claim("gpus", "gpu.nvidia.com"))
    world.pod("p", "train", 0)
    world.api.merge(PODS, "p", {"spec": {"resourceClaims": claims}}, NAMESPACE)
    world.settle(process)
    assert world.domains() == ([] if late else ["train"])
    if late:
        world.api.create(CLAIMS, resource_claim("gpus", "gpu.nvidia.com"))
        process.pass_time(UNSEEN_SECONDS)
        world.settle(process)
    assert world.domains() == ["train"]


def test_pods_that_go_with_their_job_get_no_new_domain(world: World, process: Process) -> None:
    """The garbage collector deletes the domain and the pods in any order."""
    world.pod("job-0", "train", owners=[world.controller(JOB, "job")])
    world.settle(process)
    world.nvidia_runs = False
    world.api.delete(world.kind(JOB), "job", NAMESPACE)
    world.api.merge(DOMAINS, "train", {"metadata": {"finalizers": None}}, NAMESPACE)
    world.api.delete(DOMAINS, "train", NAMESPACE)
    process.observe()
    assert process.work() == []
    assert world.domains() == []


def test_a_pod_that_terminates_or_has_ended_gets_none(world: World, process: Process) -> None:
    world.pod("ended", "train")
    ended = {"metadata": {"name": "ended", "namespace": NAMESPACE}, "status": {"phase": "Succeeded"}}
    world.api.apply(PODS, ended, field_manager="test", subresource="status")
    world.pod("going", "train")
    world.api.merge(PODS, "going", {"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking"]}}, NAMESPACE)
    world.api.delete(PODS, "going", NAMESPACE)
    world.settle(process)
    assert world.domains() == []


def test_where_grove_manages_domains_labels_work(world: World) -> None:
    process = Process(world.api, presence=replace(Presence(available=True, sets=True), grove_manages=True))
    world.pod("p", "train")
    world.settle(process)
    assert world.domains() == ["train"]
