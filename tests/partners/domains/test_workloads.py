"""Workloads get ComputeDomains, keep and give them back: GKM beside NVIDIA's controller on a real API server.

The real scheduler places the pods by their claims, and kwok runs them. Grove's part is played by tests/support/grove.
"""

from collections.abc import Iterator

import pytest
from gkm.api.mnnvl_metadata import FINALIZER
from support.cluster.cluster import KubectlFailed
from support.domains.dra_cluster import CLAIM, DraCluster
from support.domains.nvidia import SYSTEM
from support.domains.workloads import Workloads
from support.grove.objects import Json, clique, container, pod_clique_set, scaling_group

SET = "train"
COLLECTOR, NAMESPACES = (
    f"system:serviceaccount:kube-system:{name}" for name in ("generic-garbage-collector", "namespace-controller")
)
"""Accounts that the policies exempt."""


@pytest.fixture(scope="module")
def workloads(dra: DraCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workloads]:
    with Workloads.running(dra, tmp_path_factory.mktemp("gkm")) as running:
        yield running


def create(workloads: Workloads, team: str, replicas: int = 1) -> None:
    """Create a set with a GPU clique of two pods and one without GPUs."""
    cliques = (clique("worker", replicas=2), clique("router", 0))
    workloads.dra.cluster.apply(pod_clique_set(SET, *cliques, replicas=replicas, namespace=team))


def claims(found: Json) -> list[str]:
    return [claim["name"] for claim in found["spec"].get("resourceClaims", ())]


def test_pods_of_a_set_get_channels_of_the_domain_of_their_replica(workloads: Workloads, team: str) -> None:
    create(workloads, team, replicas=2)
    pods = workloads.until_running(team, 6)
    assert workloads.domains(team) == ["train-0", "train-1"]
    for found in pods:
        is_worker = "worker" in found["metadata"]["name"]
        assert claims(found) == ([CLAIM] if is_worker else [])
        if is_worker:
            (claim,) = found["spec"]["resourceClaims"]
            replica = found["metadata"]["labels"]["grove.io/podcliqueset-replica-index"]
            assert claim["resourceClaimTemplateName"] == f"train-{replica}"


def test_a_scaling_group_joins_the_domain_of_its_replica(workloads: Workloads, team: str) -> None:
    cliques = (clique("leader", 8), clique("gpu-leader", 8))
    groups = [scaling_group("workers", "leader", "gpu-leader")]
    workloads.dra.cluster.apply(pod_clique_set(SET, *cliques, scaling_groups=groups, namespace=team))
    pods = workloads.until_running(team, 2)
    assert [claims(found) for found in pods] == [[CLAIM], [CLAIM]]
    assert workloads.domains(team) == ["train-0"]


def test_the_readiness_counts_nodes_that_joined(workloads: Workloads, team: str) -> None:
    create(workloads, team)
    workloads.until_running(team, 3)
    workloads.until_condition("train-0", team, "NodesNotReady")
    nodes = workloads.dra.join(uid_of(workloads, "train-0", team), team)
    found = workloads.until_condition("train-0", team, "AllNodesReady", 2)
    assert (found["status"], found["expected"], found["ready"]) == ("True", 2, len(nodes))


def test_a_used_domain_and_its_template_cannot_be_deleted(workloads: Workloads, team: str) -> None:
    create(workloads, team)
    pods = workloads.until_running(team, 3)
    workloads.until_marked("train-0", team, 2)
    names = [found["metadata"]["name"] for found in pods if claims(found)]
    for kind in ("computedomain", "resourceclaimtemplate"):
        for more in ((), ("--cascade=foreground",), ("--grace-period=0", "--force"), ("--dry-run=server",)):
            with pytest.raises(KubectlFailed, match="is used by 2 pods") as refused:
                workloads.delete(kind, "train-0", team, *more)
            assert all(name in refused.value.stderr for name in names)
    assert "deletionTimestamp" not in workloads.dra.domain("train-0", team)["metadata"]


def test_the_mark_is_written_by_nobody_else(workloads: Workloads, team: str) -> None:
    create(workloads, team)
    workloads.until_running(team, 3)
    workloads.until_marked("train-0", team, 2)
    for kind in ("computedomain", "resourceclaimtemplate"):
        words = ("annotate", kind, "train-0", "--namespace", team, "--overwrite", "gkm.io/pods-using=0")
        with pytest.raises(KubectlFailed, match="only system:serviceaccount:gkm-system:gkm-controllers writes"):
            workloads.dra.cluster.kubectl(*words)


def test_scaling_makes_and_removes_domains(workloads: Workloads, team: str) -> None:
    create(workloads, team)
    workloads.until_running(team, 3)
    for replicas in (3, 1, 0, 2):
        workloads.scale(SET, team, replicas)
        workloads.until_domains(team, *(f"train-{number}" for number in range(replicas)))
        workloads.until_running(team, 3 * replicas)


def test_nothing_is_left_of_a_set_that_is_deleted_while_pods_run(workloads: Workloads, team: str) -> None:
    create(workloads, team, replicas=2)
    workloads.until_running(team, 6)
    workloads.until_marked("train-0", team, 2)
    uids = [uid_of(workloads, f"train-{number}", team) for number in range(2)]
    workloads.delete("podcliqueset", SET, team)
    workloads.until_domains(team)
    workloads.until_running(team, 0)
    reader = workloads.dra.cluster.objects
    workloads.dra.cluster.until(lambda: not reader.every("resourceclaims", team), "no claim")
    assert not reader.every("resourceclaimtemplates", team)
    assert not [uid for uid in uids if workloads.dra.daemon_set(uid)]


def test_a_domain_that_was_deleted_in_spite_serves_its_pods_and_is_made_again(workloads: Workloads, team: str) -> None:
    create(workloads, team)
    workloads.until_running(team, 3)
    workloads.until_marked("train-0", team, 2)
    uid = uid_of(workloads, "train-0", team)
    nodes = workloads.dra.join(uid, team)
    workloads.delete("computedomain", "train-0", team, f"--as={COLLECTOR}")
    workloads.until_condition("train-0", team, "DomainTerminating")
    assert sorted(workloads.dra.daemons(uid)) == nodes
    # Pods that are replaced join the domain that is there; only without any pod another one can be made.
    scale = ("scale", "podclique", "train-0-worker", "--namespace", team)
    workloads.dra.cluster.kubectl(*scale, "--replicas=0")
    workloads.dra.cluster.until(lambda: is_new(workloads, "train-0", team, uid), "another domain of the name")
    workloads.dra.cluster.kubectl(*scale, "--replicas=2")
    workloads.until_running(team, 3)
    assert FINALIZER in workloads.dra.domain("train-0", team)["metadata"]["finalizers"]


def test_a_lost_template_is_made_again(workloads: Workloads, team: str) -> None:
    create(workloads, team)
    workloads.until_running(team, 3)
    workloads.until_marked("train-0", team, 2)
    before = workloads.dra.template("train-0", team)["metadata"]["uid"]
    words = ("resourceclaimtemplate", "train-0", "--namespace", team)
    workloads.dra.cluster.kubectl("delete", *words, "--wait=false", f"--as={NAMESPACES}")
    patch = '--patch={"metadata":{"finalizers":null}}'
    workloads.dra.cluster.kubectl("patch", *words, "--type=merge", patch)

    def is_made() -> bool:
        found = workloads.dra.template("train-0", team)
        return bool(found) and found["metadata"]["uid"] != before

    workloads.dra.cluster.until(is_made, "another template")
    workloads.until_marked("train-0", team, 2)


def test_labeled_pods_of_a_job_share_a_domain(workloads: Workloads, team: str) -> None:
    template = {
        "metadata": {"labels": {"gkm.io/compute-domain": "shared"}},
        "spec": {"restartPolicy": "Never", "containers": [container("main", 8)]},
    }
    job: Json = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "sweep", "namespace": team},
        "spec": {"parallelism": 2, "completions": 2, "template": template},
    }
    workloads.dra.cluster.apply(job)
    pods = workloads.until_running(team, 2)
    assert [claims(found) for found in pods] == [[CLAIM], [CLAIM]]
    (owner,) = workloads.dra.domain("shared", team)["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Job", "sweep")
    workloads.delete("job", "sweep", team)
    workloads.until_domains(team)


def test_a_namespace_with_used_domains_can_be_deleted(workloads: Workloads) -> None:
    with workloads.dra.namespace("short-lived") as team:
        create(workloads, team)
        workloads.until_running(team, 3)
        workloads.until_marked("train-0", team, 2)
    reader = workloads.dra.cluster.objects
    workloads.dra.cluster.until(lambda: not reader.get("namespace", "short-lived"), "the namespace to go", 120)
    assert not [one for one in reader.every("daemonsets", SYSTEM) if one["metadata"].get("deletionTimestamp")]


def uid_of(workloads: Workloads, name: str, team: str) -> str:
    return str(workloads.dra.domain(name, team)["metadata"]["uid"])


def is_new(workloads: Workloads, name: str, team: str, uid: str) -> bool:
    found = workloads.dra.domain(name, team)
    return bool(found) and found["metadata"]["uid"] != uid and "deletionTimestamp" not in found["metadata"]
