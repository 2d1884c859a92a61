"""The root workload of a pod: its controllers, followed upward as far as GKM may read."""

import pytest
from gkm.kube.errors import ApiError
from gkm.kube.resources import Json
from gkm_operator.computedomains.lifecycle import labels
from gkm_operator.computedomains.lifecycle.labels import RootOwners
from support.grove.objects import NAMESPACE
from support.operator.domains import Process, World
from support.operator.plans import PODS


@pytest.fixture
def world() -> World:
    return World()


def roots(
    world: World, *, fresh: bool = False, finder: RootOwners | None = None, namespace: str = NAMESPACE
) -> list[str]:
    process = Process(world.api)
    process.observe("pods")
    found = (finder or RootOwners(world.api)).of(process.pods.labeled(namespace, "train"), fresh=fresh)
    assert not any(owner.controller for owner in found)
    return [f"{owner.kind} {owner.name}" for owner in found]


def chain(world: World, *kinds: str) -> Json:
    """Create objects, each controlled by the one before; return the reference to the last."""
    above: list[Json] = []
    for kind in kinds:
        above = [world.controller(kind, kind.rpartition(" ")[2].lower(), above)]
    return above[0]


@pytest.mark.parametrize(
    ("kinds", "root"),
    [
        (["batch/v1 Job"], "Job job"),
        (["apps/v1 StatefulSet"], "StatefulSet statefulset"),
        (["apps/v1 Deployment", "apps/v1 ReplicaSet"], "Deployment deployment"),
        (["jobset.x-k8s.io/v1alpha2 JobSet", "batch/v1 Job"], "JobSet jobset"),
        (["batch/v1 CronJob", "batch/v1 Job"], "Job job"),
        (["leaderworkerset.x-k8s.io/v1 LeaderWorkerSet", "apps/v1 StatefulSet"], "LeaderWorkerSet leaderworkerset"),
        (["kubeflow.org/v1 PyTorchJob"], "Pod p"),
        (["kubeflow.org/v1 PyTorchJob", "batch/v1 Job"], "Job job"),
        (["v1 Node"], "Pod p"),
        ([], "Pod p"),
    ],
    ids=lambda value: " > ".join(value) if isinstance(value, list) else "",
)
def test_the_topmost_readable_controller_is_the_root(world: World, kinds: list[str], root: str) -> None:
    world.pod("p", "train", owners=[chain(world, *kinds)] if kinds else [])
    assert roots(world) == [root]


def test_a_worker_of_a_leaderworkerset_is_below_its_leaders_pod(world: World) -> None:
    leaders = chain(world, "leaderworkerset.x-k8s.io/v1 LeaderWorkerSet", "apps/v1 StatefulSet")
    leader = world.pod("leader", "train", owners=[leaders])
    pod = {"apiVersion": "v1", "kind": "Pod", "name": "leader", "uid": leader, "controller": True}
    world.pod("worker", "train", owners=[world.controller("apps/v1 StatefulSet", "workers", [pod])])
    assert roots(world) == ["LeaderWorkerSet leaderworkerset"]


def test_an_owner_that_does_not_control_is_not_followed(world: World) -> None:
    world.pod("p", "train", owners=[chain(world, "batch/v1 Job") | {"controller": False}])
    assert roots(world) == ["Pod p"]


@pytest.mark.parametrize(
    ("error", "root"),
    [
        (ApiError(403, "Forbidden", "no right"), "Job job"),
        (ApiError(404, "", "404 page not found"), "Job job"),
    ],
    ids=["forbidden", "kind not served"],
)
def test_what_cannot_be_read_ends_the_chain_below_it(world: World, error: ApiError, root: str) -> None:
    world.pod("p", "train", owners=[chain(world, "jobset.x-k8s.io/v1alpha2 JobSet", "batch/v1 Job")])
    world.api.fault = lambda verb, plural: error if (verb, plural) == ("get", "jobsets") else None
    assert roots(world) == [root]


def test_a_pod_without_its_controller_has_no_root(world: World) -> None:
    job = chain(world, "batch/v1 Job")
    world.pod("gone", "train", owners=[job | {"name": "other"}])
    world.pod("replaced", "train", owners=[job | {"uid": "of the one before"}])
    assert roots(world) == []


def test_a_pod_of_a_job_that_is_being_deleted_has_no_root(world: World) -> None:
    world.pod("p", "train", owners=[chain(world, "batch/v1 Job")])
    job = world.kind("batch/v1 Job")
    world.api.merge(job, "job", {"metadata": {"finalizers": ["foregroundDeletion"]}}, "team")
    world.api.delete(job, "job", "team")
    assert roots(world) == []


def test_controllers_in_a_circle_end(world: World) -> None:
    job = chain(world, "batch/v1 Job")
    world.api.merge(world.kind("batch/v1 Job"), "job", {"metadata": {"ownerReferences": [job]}}, "team")
    world.pod("p", "train", owners=[job])
    assert roots(world) == ["Job job"]


def test_a_chain_ends_at_the_limit_of_its_depth(world: World) -> None:
    above: list[Json] = []
    for number in range(labels.MAX_DEPTH + 4):
        above = [world.controller("batch/v1 Job", f"job-{number}", above)]
    world.pod("p", "train", owners=above)
    assert roots(world) == ["Job job-4"]


@pytest.mark.parametrize("version", ["batch/v1/../../../api/v1", "batch/v1?x=", "batch/", "batch/v1 ", "batch/V1", ""])
def test_the_version_of_a_reference_cannot_change_the_path(world: World, version: str) -> None:
    world.pod("p", "train", owners=[chain(world, "batch/v1 Job") | {"apiVersion": version}])
    before = len(world.api.calls)
    assert roots(world) == ["Pod p"]
    assert [call for call in world.api.calls[before:] if call[0] == "get"] == []


def test_each_controller_is_read_once_for_all_its_pods(world: World) -> None:
    job = chain(world, "jobset.x-k8s.io/v1alpha2 JobSet", "batch/v1 Job")
    for number in range(20):
        world.pod(f"p{number}", "train", owners=[job])
    finder = RootOwners(world.api)
    for _ in range(3):
        assert roots(world, finder=finder) == ["JobSet jobset"]
    assert len([call for call in world.api.calls if call[0] == "get"]) == 2
    assert roots(world, finder=finder, fresh=True) == ["JobSet jobset"]
    assert len([call for call in world.api.calls if call[0] == "get"]) == 4


@pytest.mark.parametrize(
    "change",
    [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}, {"apiVersion": "extensions/v1"}],
    ids=["kind", "version"],
)
def test_a_reference_with_the_uid_of_another_object_does_not_change_what_is_known_of_that(
    world: World, change: Json
) -> None:
    """Users write owner references: a pod of one tenant may name the uid of another's ReplicaSet."""
    above = world.controller("apps/v1 Deployment", "app")
    replicas = world.controller("apps/v1 ReplicaSet", "replicas", [above])
    world.pod("forged", "train", owners=[replicas | change])
    finder = RootOwners(world.api)
    assert roots(world, finder=finder) == ["Pod forged"]
    world.api.delete(PODS, "forged", NAMESPACE)
    world.pod("p", "train", owners=[replicas])
    assert roots(world, finder=finder) == ["Deployment app"]


def test_what_is_known_of_an_object_is_not_known_of_one_with_its_uid_in_another_namespace(world: World) -> None:
    job = chain(world, "jobset.x-k8s.io/v1alpha2 JobSet", "batch/v1 Job")
    world.pod("p", "train", owners=[job])
    finder = RootOwners(world.api)
    assert roots(world, finder=finder) == ["JobSet jobset"]
    world.pod("forged", "train", owners=[job], namespace="foreign")
    assert roots(world, finder=finder, namespace="foreign") == []
