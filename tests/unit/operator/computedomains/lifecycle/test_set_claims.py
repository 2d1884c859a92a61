"""ComputeDomains of PodCliqueSets whose pods get their GPUs by claims, which may be missing or come later."""

import pytest
from gkm.kube.errors import ApiError
from gkm.kube.resources import Json
from gkm_operator.computedomains.claims import FOUND_SECONDS, UNSEEN_SECONDS
from support.grove.objects import NAMESPACE, claim_template, clique, container
from support.operator.domains import CLAIMS, GROUP, TEMPLATES, Process, World, grouped, resource_claim


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def process(world: World) -> Process:
    return Process(world.api)


def by_claim(template: str = "", **claim: str) -> Json:
    """A clique of a group whose GPUs come by a claim template, or by another claim."""
    resources = {"claims": [{"name": "gpus"}]}
    spec = {"containers": [container("main") | {"resources": resources}]}
    made = clique("worker", annotations={GROUP: "workers"})
    made["spec"]["podSpec"] = spec | {
        "resourceClaims": [{"name": "gpus", **(claim or {"resourceClaimTemplateName": template})}]
    }
    return made


def test_a_claim_template_for_gpus_makes_a_group_require_its_domain(world: World, process: Process) -> None:
    world.create_set("s", by_claim("gpus"), annotations={})
    world.settle(process)
    assert world.domains() == []
    world.api.create(TEMPLATES, claim_template("gpus", "gpu.nvidia.com"))
    world.settle(process)
    assert world.domains() == ["s-0-workers"]


def test_a_set_that_waits_for_a_claim_template_says_so(world: World, process: Process) -> None:
    world.create_set("s", by_claim("gpus"), annotations={})
    world.settle(process)
    note = (
        "GKM cannot see whether some cliques request GPUs, and creates no ComputeDomain for them yet: "
        "ResourceClaimTemplate gpus does not exist, or GKM may not read it; create it"
    )
    assert world.events() == [("s", "Warning", "ComputeDomainUndecided", note)]


def test_a_claim_that_a_pod_names_is_seen_as_admission_sees_it(world: World, process: Process) -> None:
    world.api.create(CLAIMS, resource_claim("gpus", "gpu.nvidia.com"))
    world.api.create(CLAIMS, resource_claim("other", "example.com"))
    world.create_set("s", by_claim(resourceClaimName="gpus"), annotations={})
    world.create_set("t", by_claim(resourceClaimName="other"), annotations={})
    world.settle(process)
    assert world.domains() == ["s-0-workers"]
    assert [event[2] for event in world.events()] == ["ComputeDomainCreated"]
    world.api.delete(CLAIMS, "gpus", NAMESPACE)
    process.pass_time(FOUND_SECONDS)
    process.reconciler.enqueue_all()
    world.settle(process)
    assert world.domains() == ["s-0-workers"]


def test_a_claim_that_comes_later_is_found_without_a_watch(world: World, process: Process) -> None:
    world.create_set("s", by_claim(resourceClaimName="gpus"), annotations={})
    world.settle(process)
    assert world.domains() == []
    ((_, _, reason, note),) = world.events()
    assert (reason, "ResourceClaim gpus does not exist" in note) == ("ComputeDomainUndecided", True)
    world.api.create(CLAIMS, resource_claim("gpus", "gpu.nvidia.com"))
    process.pass_time(UNSEEN_SECONDS)
    world.settle(process)
    assert world.domains() == ["s-0-workers"]


def test_claims_without_the_right_to_read_them_delay_their_group_only(world: World, process: Process) -> None:
    world.create_set("s", by_claim(resourceClaimName="gpus"), *grouped("others"), annotations={})
    world.api.fault = lambda _, plural: ApiError(403, "Forbidden", "no") if plural == "resourceclaims" else None
    world.settle(process)
    assert world.domains() == ["s-0-others"]


def test_claims_that_an_api_server_cannot_show_now_are_read_again(world: World, process: Process) -> None:
    world.api.create(CLAIMS, resource_claim("gpus", "gpu.nvidia.com"))
    world.create_set("s", by_claim(resourceClaimName="gpus"), annotations={})
    world.api.fault = lambda _, plural: ApiError(500, "", "") if plural == "resourceclaims" else None
    process.observe()
    assert len(process.work()) == 1
    world.api.fault = lambda _verb, _plural: None
    world.settle(process)
    assert world.domains() == ["s-0-workers"]


def test_a_domain_stays_when_a_claim_template_that_decided_is_deleted(world: World, process: Process) -> None:
    world.api.create(TEMPLATES, claim_template("gpus", "gpu.nvidia.com"))
    world.create_set("s", by_claim("gpus"), annotations={}, replicas=2)
    world.settle(process)
    world.api.delete(TEMPLATES, "gpus", NAMESPACE)
    world.settle(process)
    assert world.domains() == ["s-0-workers", "s-1-workers"]
    world.scale(1, "s")
    world.settle(process)
    assert world.domains() == ["s-0-workers"]
