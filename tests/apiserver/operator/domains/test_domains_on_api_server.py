"""ComputeDomains on a real API server, with its garbage collector and the rights and policies that ship."""

import re
from functools import partial
from itertools import count
from typing import Any

import pytest
from gkm.api.network_settings import Network
from support.cluster.cluster import KubectlFailed
from support.cluster.gkm_objects import namespace
from support.cluster.objects import RequestFailed, refusal
from support.grove.objects import claim_template, compute_domain, pod_clique_set
from support.kube.our_kinds import CONTROLLERS
from support.operator import domain_cluster as shapes
from support.operator.domain_cluster import (
    NVIDIA,
    DomainCluster,
    job,
    replicated,
    workloads_of_every_kind,
)
from support.operator.domains import ENROLLED, OURS

GROVE_ROLE = Network().grove_cluster_role
UNUSED = {shapes.MARK: "0"}
SHOWN = {"computedomain": "ComputeDomain", "resourceclaimtemplate": "ResourceClaimTemplate"}


NUMBERS = count(1)


def new_team(place: DomainCluster) -> str:
    name = f"team-{next(NUMBERS)}"
    place.cluster.apply(namespace(name))
    return name


@pytest.fixture
def team(place: DomainCluster) -> str:
    """A namespace of the test's own."""
    return new_team(place)


def enrolled(place: DomainCluster, team: str, replicas: int, name: str = "my-pcs") -> None:
    place.cluster.apply(pod_clique_set(name, replicas=replicas, annotations=ENROLLED, namespace=team))


def scale(place: DomainCluster, team: str, replicas: int) -> None:
    place.cluster.objects.scale("podcliqueset", "my-pcs", replicas, team)


def delete(place: DomainCluster, team: str, kind: str, name: str, **options: object) -> None:
    place.cluster.objects.ask_to_delete(kind, name, team, **options)


def test_domains_follow_their_set(place: DomainCluster, team: str) -> None:
    enrolled(place, team, 2)
    place.until_names(team, "my-pcs-0", "my-pcs-1")
    found = place.cluster.get("computedomain", "my-pcs-0", team)
    assert found["spec"] == {
        "numNodes": 0,
        "channel": {"allocationMode": "Single", "resourceClaimTemplate": {"name": "my-pcs-0"}},
    }
    assert found["metadata"]["finalizers"] == [OURS]
    for replicas in (3, 1, 0, 2):
        scale(place, team, replicas)
        place.until_names(team, *(f"my-pcs-{index}" for index in range(replicas)))
    delete(place, team, "podcliqueset", "my-pcs")
    place.until_names(team)
    told = {(f"ComputeDomain{word}", f"ComputeDomain my-pcs-2 {word.lower()}") for word in ("Created", "Deleted")}
    place.cluster.until(lambda: told <= set(place.events(team)), "both events")


@pytest.mark.parametrize("how", ["Background", "Foreground", "Orphan"])
def test_domains_go_however_their_set_is_deleted(place: DomainCluster, team: str, how: str) -> None:
    enrolled(place, team, 2)
    place.until_names(team, "my-pcs-0", "my-pcs-1")
    delete(place, team, "podcliqueset", "my-pcs", propagationPolicy=how)
    place.until_names(team)
    place.cluster.until(lambda: not place.cluster.exists("podcliqueset", "my-pcs", team), "the set to be gone")


def test_a_lost_domain_is_created_again(place: DomainCluster, team: str) -> None:
    enrolled(place, team, 1)
    place.until_names(team, "my-pcs-0")
    old = place.domain("my-pcs-0", team)["uid"]
    delete(place, team, "computedomain", "my-pcs-0")
    place.cluster.until(lambda: place.domain("my-pcs-0", team).get("uid") not in (None, old), "a new domain")
    assert place.domain("my-pcs-0", team)["finalizers"] == [OURS]
    place.cluster.until(lambda: "ComputeDomainLost" in [event[0] for event in place.events(team)], "an event")


@pytest.fixture
def used(place: DomainCluster, team: str) -> str:
    """A namespace with the domain my-pcs-0, its template, and a pod that uses it."""
    return use(place, team)


@pytest.fixture(scope="module")
def guarded(place: DomainCluster) -> str:
    """The same for tests whose requests are all refused."""
    return use(place, new_team(place))


def use(place: DomainCluster, team: str) -> str:
    enrolled(place, team, 1)
    place.until_names(team, "my-pcs-0")
    place.make_template("my-pcs-0", team)
    place.use("my-pcs-0", team)
    return team


@pytest.mark.parametrize(
    "options",
    [{}, {"dryRun": ["All"]}, {"propagationPolicy": "Foreground"}, {"gracePeriodSeconds": 0}],
    ids=str,
)
@pytest.mark.parametrize("kind", SHOWN)
def test_what_pods_use_is_not_deleted(place: DomainCluster, guarded: str, kind: str, options: dict[str, Any]) -> None:
    """By the administrator, who is in system:masters."""
    said = refusal(lambda: delete(place, guarded, kind, "my-pcs-0", **options))
    assert f"{SHOWN[kind]} {guarded}/my-pcs-0 is used by 1 pod (user): delete the workload" in said
    assert "deletionTimestamp" not in place.domain("my-pcs-0", guarded)


@pytest.mark.parametrize("kind", SHOWN)
def test_kubectl_says_why_what_pods_use_is_not_deleted(place: DomainCluster, guarded: str, kind: str) -> None:
    """Also where its user names no object."""
    said = f"{SHOWN[kind]} {guarded}/my-pcs-0 is used by 1 pod (user): delete the workload"
    with pytest.raises(KubectlFailed, match=re.escape(said)):
        place.cluster.kubectl("delete", kind, "--all", "--namespace", guarded, "--wait=false")
    assert "deletionTimestamp" not in place.domain("my-pcs-0", guarded)


def test_nvidias_controller_cannot_delete_a_used_template(place: DomainCluster, used: str) -> None:
    nvidia = place.cluster.objects.as_user(NVIDIA)
    template = ("resourceclaimtemplate", "my-pcs-0", used)
    assert "is used by 1 pod" in refusal(lambda: nvidia.ask_to_delete(*template))
    place.cluster.objects.delete_named("pod", "user", used)
    place.cluster.until(lambda: place.mark("resourceclaimtemplate", "my-pcs-0", used) == "0", "the mark to fall")
    nvidia.ask_to_delete(*template)


@pytest.mark.parametrize("kind", SHOWN)
@pytest.mark.parametrize(
    "notes", [{shapes.MARK: None}, {shapes.MARK: "0"}, {shapes.MARK: ""}, {"gkm.io/used-by": "me"}], ids=str
)
def test_only_the_controllers_change_a_mark(
    place: DomainCluster, guarded: str, kind: str, notes: dict[str, str | None]
) -> None:
    patch = {"metadata": {"annotations": notes}}
    said = refusal(lambda: place.cluster.objects.merge(kind, "my-pcs-0", patch, guarded))
    assert f"only {CONTROLLERS} writes the annotations" in said
    assert "this is admin" in said


@pytest.mark.parametrize("kind", SHOWN)
@pytest.mark.parametrize("marks", [{shapes.MARK: "1"}, {shapes.MARK: ""}, {"gkm.io/used-by": "x"}], ids=str)
def test_only_the_controllers_create_a_mark(
    place: DomainCluster, guarded: str, kind: str, marks: dict[str, str]
) -> None:
    found = place.cluster.get(kind, "my-pcs-0", guarded)
    metadata = {"name": "restored", "namespace": guarded, "annotations": marks}
    restored = {key: found[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": metadata}
    with pytest.raises(RequestFailed, match="of a new object: leave them out, or restore"):
        place.cluster.objects.create(restored)


@pytest.mark.parametrize("kind", SHOWN)
def test_what_is_unused_can_be_restored_from_a_backup_and_replaced(place: DomainCluster, team: str, kind: str) -> None:
    """No mark and the mark 0 mean the same, so that no manifest needs a mark, and a backup may have it."""
    made = {
        "computedomain": compute_domain("mine", namespace=team),
        "resourceclaimtemplate": claim_template("mine", "gpu.nvidia.com", namespace=team),
    }[kind]
    unmarked, marked = ({**made, "metadata": made["metadata"] | {"annotations": notes}} for notes in ({}, UNUSED))
    place.cluster.objects.create(marked)
    for manifest in (unmarked, marked):
        place.cluster.objects.replace(manifest)
    delete(place, team, kind, "mine")
    place.cluster.until(lambda: not place.cluster.exists(kind, "mine", team), "it is gone")


def test_a_namespace_with_used_domains_can_be_deleted(place: DomainCluster, used: str) -> None:
    place.cluster.objects.ask_to_delete("namespace", used)
    place.cluster.until(lambda: not place.cluster.exists("namespace", used), "the namespace to be gone", 90)


def test_a_used_domain_goes_with_its_set(place: DomainCluster, used: str) -> None:
    delete(place, used, "podcliqueset", "my-pcs")
    place.until_names(used)
    assert place.mark("resourceclaimtemplate", "my-pcs-0", used) == "1"


def test_a_used_domain_is_released_when_its_set_is_scaled_in(place: DomainCluster, used: str) -> None:
    scale(place, used, 0)
    place.until_names(used)


def test_labeled_workloads_share_a_domain_that_goes_with_the_last(place: DomainCluster, team: str) -> None:
    place.cluster.apply([job("one", "train", team), replicated("Deployment", "two", "train", team)])
    place.until_names(team, "train")

    def owners() -> list[tuple[str, str]]:
        return sorted((one["kind"], one["name"]) for one in place.domain("train", team).get("ownerReferences", ()))

    place.cluster.until(lambda: owners() == [("Deployment", "two"), ("Job", "one")], "both owners")
    delete(place, team, "job", "one")
    place.cluster.until(lambda: owners() == [("Deployment", "two")], "one owner")
    delete(place, team, "deployment", "two")
    place.until_names(team)


def test_every_kind_of_workload_owns_its_domain(place: DomainCluster, team: str) -> None:
    wanted = workloads_of_every_kind(place.cluster, team)
    place.until_names(team, *wanted)
    for name, owner in wanted.items():
        (found,) = place.domain(name, team)["ownerReferences"]
        assert (found["kind"], found["name"]) == owner


def test_two_controllers_at_once_and_one_killed_leave_every_domain_once(place: DomainCluster, team: str) -> None:
    second = place.controllers(second=True)
    sets = [pod_clique_set(f"s{number}", replicas=4, annotations=ENROLLED, namespace=team) for number in range(10)]
    place.cluster.apply(sets)
    place.cluster.until(lambda: len(place.names(team)) > 10, "some domains")
    second.popen.kill()
    place.until_names(team, *(f"s{number}-{index}" for number in range(10) for index in range(4)))
    for number in range(10):
        place.cluster.objects.scale("podcliqueset", f"s{number}", 1, team)
    place.until_names(team, *(f"s{number}-0" for number in range(10)))
    for number in range(10):
        delete(place, team, "podcliqueset", f"s{number}")
    place.until_names(team)


def test_where_groves_role_may_create_domains_gkm_writes_none(place: DomainCluster, team: str) -> None:
    rules = [{"apiGroups": ["resource.nvidia.com"], "resources": ["computedomains"], "verbs": ["create"]}]
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": GROVE_ROLE}}
    place.cluster.apply(head | {"rules": rules})
    try:
        place.cluster.until(partial(place.has_condition, "GroveManagesDomains", "True"), "the condition", 90)
        enrolled(place, team, 1)
        place.cluster.until(lambda: "GroveManagesDomains" in [event[0] for event in place.events(team)], "an event")
        assert place.names(team) == []
    finally:
        place.cluster.objects.delete_named("clusterrole", GROVE_ROLE)
    place.until_names(team, "my-pcs-0", seconds=90)


def test_metrics_count_domains_and_reconciles(place: DomainCluster, team: str) -> None:
    enrolled(place, team, 1)
    place.until_names(team, "my-pcs-0")
    for counted in (
        'gkm_computedomains{state="missing"}',
        'gkm_reconcile_seconds_count{controller="computedomains",result="done"}',
        'gkm_queue_depth{controller="computedomains"}',
    ):
        # The domain is there before the reconcile that made it has ended, and is counted.
        place.cluster.until(partial(place.has_counted, counted), counted)
