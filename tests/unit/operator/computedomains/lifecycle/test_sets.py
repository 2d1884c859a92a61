"""ComputeDomains of PodCliqueSets: created, scaled, released; the rows of Grove's own tests (P1-I) among them."""

import re

import pytest
from gkm.kube.resources import Json, Resource
from support.grove.objects import NAMESPACE, claim_template, clique, compute_domain
from support.operator.domains import (
    AUTO,
    DOMAINS,
    GROUP,
    MARK,
    NVIDIA,
    OFF,
    ON,
    OURS,
    SETS,
    TEMPLATES,
    Process,
    World,
    grouped,
)
from support.operator.plans import everything


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture(params=[ON, OFF], ids=["on", "off"])
def process(world: World, request: pytest.FixtureRequest) -> Process:
    """The switch decides about enrollment only."""
    return Process(world.api, request.param)


def test_a_domain_is_written_as_grove_writes_it(world: World, process: Process) -> None:
    uid = world.create_set()
    process.observe()
    process.work()
    found = world.domain("test-pcs-0")
    meta = found["metadata"]
    assert meta["labels"] == {
        "app.kubernetes.io/managed-by": "grove-operator",
        "app.kubernetes.io/part-of": "test-pcs",
        "app.kubernetes.io/name": "test-pcs-0",
        "app.kubernetes.io/component": "pcs-computedomain",
        "grove.io/podcliqueset-replica-index": "0",
        "gkm.io/written-by": "gkm",
    }
    assert meta["finalizers"] == [OURS]
    assert meta["ownerReferences"] == [
        {
            "apiVersion": "grove.io/v1alpha1",
            "kind": "PodCliqueSet",
            "name": "test-pcs",
            "uid": uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert found["spec"] == {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": "test-pcs-0"}}}


def test_a_group_has_domains_of_its_own_with_its_label(world: World, process: Process) -> None:
    world.create_set("my-pcs", *grouped("workers", "encoders"), replicas=2, annotations={})
    world.settle(process)
    names = ["my-pcs-0-encoders", "my-pcs-0-workers", "my-pcs-1-encoders", "my-pcs-1-workers"]
    assert world.domains() == names
    assert world.domain("my-pcs-1-workers")["metadata"]["labels"][GROUP] == "workers"


@pytest.mark.parametrize(
    ("annotations", "cliques"),
    [
        ({}, []),
        ({AUTO: "disabled"}, []),
        ({AUTO: "enabld"}, []),
        ({}, [clique("router", 0)]),
        ({GROUP: "none"}, []),
        ({GROUP: "workers"}, [clique("router", 0)]),
        ({}, [clique("worker", resourceClaims=[{"name": "gpus", "resourceClaimName": "gpus"}])]),
    ],
)
def test_a_set_without_mnnvl_costs_no_request(
    world: World, process: Process, annotations: dict[str, str], cliques: list[Json]
) -> None:
    """P1: TestSyncSkipsWhenMNNVLNotEnabled; older sets have no annotation, whatever the switch."""
    world.create_set("test-pcs", *cliques, annotations=annotations)
    process.observe()
    before = len(world.api.calls)
    assert process.work() == []
    assert world.api.calls[before:] == []


@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 3), (3, 3), (4, 2), (2, 4), (2, 0), (0, 2), (3, 1)])
def test_the_domains_follow_the_replicas(world: World, process: Process, before: int, after: int) -> None:
    """P1: TestSyncCreatesComputeDomains, ScaleIn, ScaleOut, and scale to zero (grove-07, W3)."""
    world.create_set(replicas=before)
    world.settle(process)
    first = {name: world.domain(name)["metadata"]["uid"] for name in world.domains()}
    assert list(first) == [f"test-pcs-{index}" for index in range(before)]
    world.scale(after)
    world.settle(process)
    assert world.domains() == [f"test-pcs-{index}" for index in range(after)]
    for index in range(min(before, after)):
        assert world.domain(f"test-pcs-{index}")["metadata"]["uid"] == first[f"test-pcs-{index}"]
    assert sorted(template["metadata"]["name"] for template in everything(world.api, TEMPLATES)) == world.domains()


def test_to_zero_and_back_has_the_names_of_before(world: World, process: Process) -> None:
    world.create_set(replicas=2)
    for replicas in (2, 0, 2):
        world.scale(replicas)
        world.settle(process)
    assert world.domains() == ["test-pcs-0", "test-pcs-1"]


def test_a_second_reconcile_writes_nothing(world: World, process: Process) -> None:
    world.create_set(replicas=3)
    world.settle(process)
    process.observe()
    process.reconciler.enqueue_all()
    before = len(world.api.calls)
    assert process.work() == []
    assert world.api.calls[before:] == []


def test_domains_go_with_their_set(world: World, process: Process) -> None:
    world.create_set(replicas=3)
    world.settle(process)
    world.delete_set()
    world.settle(process)
    assert world.domains() == []
    assert everything(world.api, TEMPLATES) == []


@pytest.mark.parametrize("change", ["deleted", "scaled in"])
def test_a_used_domain_that_is_not_required_works_until_its_pods_have_ended(
    world: World, process: Process, change: str
) -> None:
    world.create_set()
    world.settle(process)
    world.use("test-pcs-0", 2)
    world.settle(process)
    if change == "deleted":
        world.delete_set()
    else:
        world.scale(0)
    world.settle(process)
    meta = world.domain("test-pcs-0")["metadata"]
    assert (meta["finalizers"], "deletionTimestamp" in meta, meta["annotations"][MARK]) == ([NVIDIA], True, "2")
    assert [one["metadata"]["name"] for one in everything(world.api, TEMPLATES)] == ["test-pcs-0"]
    world.use("test-pcs-0", 0)
    world.settle(process)
    assert world.domains() == []


def test_domains_of_a_set_that_lingers_are_released(world: World, process: Process) -> None:
    world.create_set(replicas=2)
    world.settle(process)
    world.api.merge(SETS, "test-pcs", {"metadata": {"finalizers": ["grove.io/podcliqueset.grove.io"]}}, NAMESPACE)
    world.delete_set()
    world.settle(process)
    assert world.domains() == []


def test_a_set_that_is_created_again_gets_domains_under_the_same_names(world: World, process: Process) -> None:
    world.create_set(replicas=2)
    world.settle(process)
    world.delete_set()
    uid = world.create_set(replicas=2)
    world.settle(process)
    assert world.domains() == ["test-pcs-0", "test-pcs-1"]
    assert {world.domain(name)["metadata"]["ownerReferences"][0]["uid"] for name in world.domains()} == {uid}


@pytest.mark.parametrize("finalizers", [[OURS], [OURS, NVIDIA]])
def test_a_lost_domain_is_created_again_under_its_name(world: World, process: Process, finalizers: list[str]) -> None:
    world.create_set()
    process.observe()
    process.work()
    world.api.merge(DOMAINS, "test-pcs-0", {"metadata": {"finalizers": finalizers}}, NAMESPACE)
    old = world.domain("test-pcs-0")["metadata"]["uid"]
    world.api.delete(DOMAINS, "test-pcs-0", NAMESPACE)
    world.settle(process)
    assert world.domains() == ["test-pcs-0"]
    assert world.domain("test-pcs-0")["metadata"]["uid"] != old
    assert ("test-pcs", "Warning", "ComputeDomainLost") in [event[:3] for event in world.events()]


def test_a_required_domain_that_is_deleted_works_until_its_pods_have_ended(world: World, process: Process) -> None:
    """The administrator switched the policy off: the mark on the claim template still delays NVIDIA's teardown."""
    world.create_set()
    world.settle(process)
    world.use("test-pcs-0", 2)
    world.api.delete(DOMAINS, "test-pcs-0", NAMESPACE)
    world.settle(process)
    old = world.domain("test-pcs-0")["metadata"]
    assert old["finalizers"] == [OURS, NVIDIA]
    world.use("test-pcs-0", 0)
    world.settle(process)
    new = world.domain("test-pcs-0")["metadata"]
    assert new["uid"] != old["uid"]
    assert "deletionTimestamp" not in new


def test_a_used_domain_whose_template_is_gone_is_lost_at_once(world: World, process: Process) -> None:
    world.create_set()
    world.settle(process)
    world.use("test-pcs-0", 2)
    world.nvidia_runs = False
    world.api.delete(DOMAINS, "test-pcs-0", NAMESPACE)
    world.settle(process)
    world.api.delete(TEMPLATES, "test-pcs-0", NAMESPACE)
    world.settle(process)
    assert world.domain("test-pcs-0")["metadata"]["finalizers"] == [NVIDIA]


def test_a_lost_domain_stays_while_nvidias_controller_has_not_torn_it_down(world: World, process: Process) -> None:
    world.create_set()
    world.settle(process)
    world.nvidia_runs = False
    world.api.delete(DOMAINS, "test-pcs-0", NAMESPACE)
    world.settle(process)
    assert world.domain("test-pcs-0")["metadata"]["finalizers"] == [NVIDIA]


@pytest.mark.parametrize(
    ("kind", "taken"),
    [
        (DOMAINS, compute_domain("test-pcs-0")),
        (TEMPLATES, claim_template("test-pcs-0", "example.com")),
        (DOMAINS, compute_domain("other", template="test-pcs-0")),
    ],
    ids=["domain", "template", "template of a domain"],
)
def test_a_name_of_another_object_is_left_to_it(
    world: World, process: Process, kind: Resource[Json], taken: Json
) -> None:
    """grove-07, W8: Grove's operator fails in a loop, or NVIDIA's controller does."""
    world.api.create(kind, taken)
    world.create_set(replicas=2)
    world.settle(process)
    (made,) = (one for one in world.made() if one["metadata"]["labels"]["grove.io/podcliqueset-replica-index"] == "0")
    name = made["metadata"]["name"]
    assert re.fullmatch("test-pcs-0-[0-9a-f]{12}", name)
    assert made["spec"]["channel"]["resourceClaimTemplate"]["name"] == name
    assert world.api.get(TEMPLATES, name, NAMESPACE)["metadata"]["labels"][NVIDIA] == made["metadata"]["uid"]
    world.delete_set()
    world.settle(process)
    assert world.made() == []
    assert world.api.get(kind, taken["metadata"]["name"], NAMESPACE)["spec"] == taken["spec"]


def test_two_sets_whose_names_collide_both_get_their_domain(world: World, process: Process) -> None:
    world.create_set("foo", *grouped("1-x"), annotations={})
    world.create_set("foo-0", *grouped("x"), annotations={}, replicas=2)
    world.settle(process)
    assert len(world.made()) == 3
    plain, (hashed,) = world.domains()[:2], [name for name in world.domains() if len(name) > len("foo-0-1-x")]
    assert hashed.startswith("foo-0-1-x-")
    assert plain == ["foo-0-0-x", "foo-0-1-x"]


def test_a_name_that_is_too_long_ends_in_a_hash(world: World, process: Process) -> None:
    world.create_set("a" * 44, *grouped("g" * 63), annotations={})
    world.settle(process)
    (name,) = world.domains()
    assert len(name) == 63
    assert world.domain(name)["metadata"]["labels"]["app.kubernetes.io/name"] == name
