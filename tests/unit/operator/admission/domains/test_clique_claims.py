"""Reviews of PodCliques with claims of their own: for GPUs, for a channel, by name, by template, or shared by Grove."""

import pytest
from gkm.api.mnnvl_metadata import DOMAIN_LABEL, MNNVL_GROUP
from gkm_operator.computedomains.objects import of_set
from gkm_operator.mnnvl.required import SetDomainKey
from support.grove.objects import (
    Json,
    claim_template,
    clique,
    container,
    pod_clique_set,
    shared_claim,
    sharing_set,
)
from support.grove.tables import table
from support.operator.enrolled_cliques import CLIQUES, ENABLED, a_site, an_object
from support.operator.workloads import DOMAINS, Workloads

CLAIM = {"main": ["mnnvl-claim"]}
OWN = [{"name": "imex", "resourceClaimTemplateName": "own"}]


def test_a_clique_with_a_channel_of_its_own_gets_a_warning_and_no_label() -> None:
    site = a_site()
    site.put(claim_template("own", "compute-domain-default-channel.nvidia.com"))
    given = an_object()
    given["spec"]["podSpec"]["resourceClaims"] = OWN
    found = site.review(CLIQUES, given)
    assert (found.allowed, found.changed) == (True, False)
    assert "pods of test-pcs-0-worker join no ComputeDomain of GKM: its claim 'imex' is a channel" in found.warnings


def test_a_clique_with_gpus_by_a_claim_gets_the_claim() -> None:
    site = a_site()
    site.put({**claim_template("shared", "gpu.nvidia.com"), "kind": "ResourceClaim", "spec": devices("gpu.nvidia.com")})
    given = an_object()
    given["spec"]["podSpec"] = {
        "containers": [{"name": "main", "resources": {"claims": [{"name": "gpus"}]}}, container("cpu")],
        "resourceClaims": [{"name": "gpus", "resourceClaimName": "shared"}],
    }
    assert site.review(CLIQUES, given).claims() == {"main": ["gpus", "mnnvl-claim"]}


BY_TEMPLATE, BY_NAME = ({"resourceClaimTemplateName": "late"}, {"resourceClaimName": "late"})


def claiming(claim: Json, *containers: Json) -> Json:
    """A PodClique whose container `main` has a claim, and perhaps GPUs."""
    given = an_object()
    main = containers or ({"name": "main", "resources": {"claims": [{"name": "late"}]}},)
    given["spec"]["podSpec"] = {"containers": list(main), "resourceClaims": [{"name": "late", **claim}]}
    return given


@table(
    "claim, what, device_class, claims",
    [
        ("a template for GPUs", BY_TEMPLATE, "claim template", "gpu.nvidia.com", {"main": ["late", "mnnvl-claim"]}),
        ("a template for others", BY_TEMPLATE, "claim template", "nic.example", {"main": ["late"]}),
        ("a claim for GPUs", BY_NAME, "ResourceClaim", "gpu.nvidia.com", {"main": ["late", "mnnvl-claim"]}),
    ],
)
@pytest.mark.parametrize("annotations", [ENABLED, {MNNVL_GROUP: "g"}], ids=["auto-mnnvl", "mnnvl-group"])
def test_a_clique_waits_for_a_claim_that_decides_whether_it_requests_gpus(
    claim: Json, what: str, device_class: str, claims: Json, annotations: dict[str, str]
) -> None:
    site, given = Workloads(), claiming(claim)
    template = clique("worker")
    template["spec"]["podSpec"] = given["spec"]["podSpec"]
    key = SetDomainKey(0, annotations.get(MNNVL_GROUP, ""))
    made = pod_clique_set("test-pcs", template, annotations=annotations)
    owner = site.create_set(made, *([] if key.group else [key]))
    site.observe()
    for old in (None, given):
        found = site.review(CLIQUES, given, old)
        assert not found.allowed
        assert f"{what} late does not exist yet; try again" in found.message
    kind = {"claim template": "ResourceClaimTemplate", "ResourceClaim": "ResourceClaim"}[what]
    spec = {"spec": devices(device_class)} if what == "claim template" else devices(device_class)
    site.put({**claim_template("late", device_class), "kind": kind, "spec": spec})
    if key.group and "gpu" in device_class:
        assert "without test-pcs-0-g of its 1" in site.review(CLIQUES, given).message
        site.api.create(DOMAINS, of_set(owner, key).manifest("test-pcs-0-g", "2026-01-01T00:00:00Z"))
        site.observe()
    found = site.review(CLIQUES, given)
    assert (found.allowed, found.claims()) == (True, claims)


@table(
    "given, withdrawn",
    [
        ("no container uses it", claiming(BY_TEMPLATE, container("main")), None),
        ("its clique withdrew", claiming(BY_TEMPLATE), {MNNVL_GROUP: "none"}),
    ],
)
def test_a_claim_that_decides_nothing_is_not_waited_for(given: Json, withdrawn: dict[str, str] | None) -> None:
    site = Workloads()
    made = pod_clique_set("test-pcs", clique("worker", annotations=withdrawn), annotations=ENABLED)
    site.create_set(made, SetDomainKey(0, ""))
    site.observe()
    found = site.review(CLIQUES, given)
    assert (found.allowed, found.changed) == (True, False)


def test_a_clique_with_gpus_waits_for_a_claim_that_may_be_a_channel_of_its_own() -> None:
    given = claiming(BY_TEMPLATE, container("main", 8))
    site = a_site()
    assert "claim template late does not exist yet" in site.review(CLIQUES, given).message
    site.put(claim_template("late", "compute-domain-default-channel.nvidia.com"))
    assert "is a channel to another ComputeDomain" in site.review(CLIQUES, given).warnings


def devices(device_class: str) -> Json:
    return {"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": device_class}}]}}


def test_a_clique_whose_pods_share_a_claim_for_gpus_gets_the_claim_in_every_container() -> None:
    site = Workloads()
    made = pod_clique_set("test-pcs", clique("worker", 0), clique("router", 0), annotations=ENABLED)
    sharing_set(made, "gpu.nvidia.com", shared_claim(childCliqueNames=["worker"]))
    site.create_set(made, SetDomainKey(0, ""))
    site.observe()
    given = an_object()
    given["spec"]["podSpec"] = {"containers": [container("main"), {"name": "bare", "image": "i", "resources": {}}]}
    found = site.review(CLIQUES, given)
    assert found.claims() == {"main": ["mnnvl-claim"], "bare": ["mnnvl-claim"]}
    assert found.labels[DOMAIN_LABEL] == "test-pcs-0"
    assert not site.review(CLIQUES, found.object, found.object).changed
    late = an_object(replica=1)
    late["spec"]["podSpec"] = given["spec"]["podSpec"]
    assert "requires no ComputeDomain test-pcs-1" in site.review(CLIQUES, late).message
    router = an_object(name="router")
    router["spec"]["podSpec"] = given["spec"]["podSpec"]
    assert not site.review(CLIQUES, router).changed


def test_a_clique_waits_for_the_template_of_a_claim_that_its_pods_share() -> None:
    site = Workloads()
    made = pod_clique_set("test-pcs", clique("worker", 0), annotations=ENABLED)
    site.create_set(sharing_set(made, "nic.example", shared_claim("late"), of="worker"), SetDomainKey(0, ""))
    site.observe()
    given = an_object()
    given["spec"]["podSpec"] = {"containers": [container("main")]}
    assert "claim template late does not exist yet" in site.review(CLIQUES, given).message
    site.put(claim_template("late", "gpu.nvidia.com"))
    assert site.review(CLIQUES, given).claims() == CLAIM
