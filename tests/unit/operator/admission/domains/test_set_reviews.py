"""Reviews of PodCliqueSets beyond Grove's tables: claims, the dialect, another operator, limits, warnings, failures."""

import pytest
from gkm.api.domain_capacity import GROVE_MANAGES_DOMAINS, CliqueCapacity, DomainCapacity, NodePool
from gkm.api.mnnvl_metadata import AUTO_MNNVL, MNNVL_GROUP
from gkm.api.network_settings import Network
from gkm.kube.errors import ApiError
from gkm_operator.admission.domains.review_view import MAX_CLAIMS
from support.grove.objects import (
    NAMESPACE,
    Json,
    claim_template,
    clique,
    container,
    pod_clique_set,
    shared_claim,
    sharing_set,
)
from support.grove.tables import table
from support.operator.workloads import OFF, ON, workloads

DEFAULT, VALIDATE = "/podcliquesets/default", "/podcliquesets/validate"
ENABLED = {AUTO_MNNVL: "enabled"}
CLAIMED = clique(
    "worker",
    containers=[{"name": "main", "resources": {"claims": [{"name": "gpus"}]}}],
    resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "gpus"}],
)
PART = container("part", 1, "nvidia.com/mig-1g.5gb")


def with_inline(device_class: str) -> Json:
    return sharing_set(pod_clique_set("inline", clique("worker", 0)), device_class, shared_claim())


@table(
    "given, added",
    [
        ("a claim of a GPU class", pod_clique_set("c", CLAIMED), True),
        ("an inline claim template of a GPU class", with_inline("gpu.nvidia.com"), True),
        ("an inline claim template of another class", with_inline("nic.example"), False),
        ("a part of a GPU", pod_clique_set("m", clique("w", containers=[PART])), True),
        ("a group on a clique", pod_clique_set("g", clique("w", annotations={MNNVL_GROUP: "x"})), False),
        ("none on the set", pod_clique_set("n", annotations={MNNVL_GROUP: "none"}), False),
        ("other annotations", pod_clique_set("o", annotations={"a": "b"}), True),
    ],
)  # fmt: skip
def test_a_new_set_is_enrolled_when_it_requests_gpus_and_has_decided_nothing(given: Json, *, added: bool) -> None:
    site = workloads(claim_template("gpus", "gpu.nvidia.com"))
    found = site.review(DEFAULT, given)
    assert found.allowed
    assert found.annotations == (given["metadata"].get("annotations") or {}) | (ENABLED if added else {})


def test_under_the_dialect_of_groups_no_set_is_enrolled_by_default() -> None:
    site = workloads(settings=Network(auto_mnnvl_enabled=True, mnnvl_dialect="mnnvl-group"))
    assert not site.review(DEFAULT, pod_clique_set()).changed


def test_a_set_whose_claim_template_does_not_exist_is_not_enrolled() -> None:
    assert not workloads().review(DEFAULT, pod_clique_set("c", CLAIMED)).changed


def test_a_set_is_refused_while_it_cannot_be_seen_whether_its_claim_requests_gpus() -> None:
    site = workloads()
    site.api.fault = lambda verb, _: ApiError(0, "Unreachable", "away") if verb == "get" else None
    found = site.review(DEFAULT, pod_clique_set("c", CLAIMED))
    assert not found.allowed
    assert "ResourceClaimTemplate gpus cannot be read" in found.message
    assert "try again" in found.message
    assert site.review(DEFAULT, pod_clique_set()).changed


def test_where_grove_manages_domains_its_own_switch_decides() -> None:
    site = workloads(settings=OFF)
    assert "not enabled" in site.review(VALIDATE, pod_clique_set(annotations=ENABLED)).message
    site.publish(None, GROVE_MANAGES_DOMAINS)
    site.observe()
    assert site.review(VALIDATE, pod_clique_set(annotations=ENABLED)).allowed
    on = workloads()
    assert on.review(DEFAULT, pod_clique_set()).changed
    on.publish(None, GROVE_MANAGES_DOMAINS)
    on.observe()
    assert not on.review(DEFAULT, pod_clique_set()).changed


def test_a_set_that_is_being_deleted_passes() -> None:
    going = pod_clique_set(annotations=ENABLED)
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert workloads().review(VALIDATE, going, pod_clique_set()).allowed


def test_a_set_of_too_many_domains_is_refused_and_an_old_one_stays_editable() -> None:
    site = workloads()
    large, larger = (pod_clique_set(annotations=ENABLED, replicas=count) for count in (10_001, 10_002))
    assert "10001 ComputeDomains, and the limit of a PodCliqueSet is 10000" in site.review(VALIDATE, large).message
    assert not site.review(VALIDATE, large, pod_clique_set(annotations=ENABLED)).allowed
    assert site.review(VALIDATE, larger, large).allowed
    assert site.review(VALIDATE, pod_clique_set(annotations=ENABLED, replicas=10_000)).allowed


def test_many_problems_are_listed_up_to_a_number() -> None:
    cliques = [clique(f"c{number}", annotations={MNNVL_GROUP: "X"}) for number in range(50)]
    message = workloads().review(VALIDATE, pod_clique_set("many", *cliques)).message
    assert message.count("DNS-1123") == 4
    assert message.endswith("and 46 more")


OWN_CLAIM = clique("own", resourceClaims=[{"name": "mnnvl-claim", "resourceClaimTemplateName": "mine"}])
OWN_CHANNEL = clique("channel", resourceClaims=[{"name": "imex", "resourceClaimTemplateName": "mine"}])


@pytest.mark.parametrize("given", [OWN_CLAIM, OWN_CHANNEL], ids=lambda given: str(given["name"]))
def test_a_clique_that_gets_no_claim_because_of_its_own_is_warned_of(given: Json) -> None:
    site = workloads(claim_template("mine", "compute-domain-default-channel.nvidia.com"))
    found = site.review(VALIDATE, pod_clique_set("own", given, annotations=ENABLED))
    assert found.allowed
    assert f"pods of clique '{given['name']}' join no ComputeDomain of GKM" in found.warnings


def test_what_the_cluster_lacks_is_a_warning_and_never_a_refusal() -> None:
    site = workloads()
    four = pod_clique_set("four", clique("worker", replicas=4), annotations=ENABLED)
    assert site.review(VALIDATE, four).warnings == ""
    site.publish(DomainCapacity((CliqueCapacity("a.1", (NodePool("GB200", 4, 18, 2),)),)))
    site.observe()
    found = site.review(VALIDATE, four)
    assert found.allowed
    assert (
        "needs 4 whole nodes in one clique; the largest free clique has 2 (clique a.1 with 18 nodes)" in found.warnings
    )
    assert site.review(VALIDATE, four, four).warnings == ""


def test_an_update_is_compared_with_what_the_set_has_already() -> None:
    site = workloads()
    site.publish(DomainCapacity((CliqueCapacity("a.1", (NodePool("GB200", 4, 18, 4),)),)))
    site.observe()
    one, two, three = (
        pod_clique_set("n", clique("worker", 4, replicas=4), annotations=ENABLED, replicas=count) for count in (1, 2, 3)
    )
    assert site.review(VALIDATE, two, one).warnings == ""
    assert "enough for 1 of 2 replicas" in site.review(VALIDATE, three, one).warnings
    assert site.review(VALIDATE, one, three).warnings == ""


def test_a_set_is_admitted_with_a_warning_when_what_it_needs_cannot_be_seen() -> None:
    site = workloads()
    site.api.fault = lambda verb, _: ApiError(0, "Unreachable", "away") if verb == "get" else None
    found = site.review(VALIDATE, pod_clique_set("c", CLAIMED, annotations=ENABLED))
    assert found.allowed
    assert "did not check" in found.warnings


@pytest.mark.parametrize("text", ["{", '{"cliques": 1}'])
def test_an_unreadable_capacity_is_none(text: str) -> None:
    site = workloads(settings=ON)
    site.publish(DomainCapacity((CliqueCapacity("a.1", ()),)))
    site.api._objects["configmaps", "gkm-system", "gkm-domains"]["data"]["capacity"] = text
    site.observe()
    assert site.view.capacity is None
    assert site.review(VALIDATE, pod_clique_set(annotations=ENABLED)).warnings == ""


def test_the_namespace_of_a_claim_template_is_that_of_the_request() -> None:
    site = workloads(claim_template("gpus", "gpu.nvidia.com", namespace="other"))
    assert not site.review(DEFAULT, pod_clique_set("c", CLAIMED)).changed
    assert site.review(DEFAULT, pod_clique_set("c", CLAIMED), namespace="other").changed
    assert NAMESPACE != "other"


def many_claims(count: int, gpus: int = 0) -> Json:
    names = [f"t{number}" for number in range(count)]
    cliques = [
        clique(
            f"c{at}",
            containers=[container("main", gpus, claims=[{"name": name} for name in names[at : at + 40]])],
            resourceClaims=[{"name": name, "resourceClaimTemplateName": name} for name in names[at : at + 40]],
        )
        for at in range(0, count, 40)
    ]
    return pod_clique_set("many", *cliques)


def test_a_set_whose_gpus_only_more_claims_show_than_a_review_reads_is_refused() -> None:
    site = workloads()
    found = site.review(DEFAULT, many_claims(MAX_CLAIMS + 1))
    assert not found.allowed
    assert "more than 64 ResourceClaims and ResourceClaimTemplates show whether it requests GPUs" in found.message
    assert "try again" not in found.message
    assert len([verb for verb, _, _ in site.api.calls if verb == "get"]) == MAX_CLAIMS


def test_claims_are_not_read_where_they_decide_nothing() -> None:
    site = workloads()
    assert site.review(DEFAULT, many_claims(200, gpus=8)).annotations == ENABLED
    disabled = many_claims(200)
    disabled["metadata"]["annotations"] = {AUTO_MNNVL: "disabled"}
    assert site.review(DEFAULT, disabled).allowed
    assert site.review(VALIDATE, disabled).allowed
    unused = many_claims(200)
    for each in unused["spec"]["template"]["cliques"]:
        each["spec"]["podSpec"]["containers"] = [container("main")]
    found = site.review(DEFAULT, unused)
    assert (found.allowed, found.changed) == (True, False)
    assert not [verb for verb, _, _ in site.api.calls if verb == "get"]


def test_a_new_enrolled_set_with_too_many_claims_is_refused_and_an_old_one_warned() -> None:
    site = workloads()
    enrolled = many_claims(MAX_CLAIMS + 1)
    enrolled["metadata"]["annotations"] = {AUTO_MNNVL: "enabled"}
    assert "use fewer" in site.review(VALIDATE, enrolled).message
    found = site.review(VALIDATE, enrolled, enrolled)
    assert found.allowed
    assert "use fewer" in found.warnings


def test_a_set_is_never_refused_for_a_claim_template_that_does_not_exist_yet() -> None:
    site = workloads()
    assert site.review(DEFAULT, pod_clique_set("claimed", CLAIMED)).allowed
    enrolled = pod_clique_set("claimed", CLAIMED, annotations=ENABLED)
    assert site.review(VALIDATE, enrolled).allowed
    assert site.review(VALIDATE, enrolled, enrolled).allowed


def test_a_set_that_shares_claims_of_another_namespace_is_not_enrolled_and_warned_of() -> None:
    site = workloads()
    given = sharing_set(pod_clique_set("set", clique("worker", 0)), "x", shared_claim("t", namespace="other"))
    assert not site.review(DEFAULT, given).changed
    found = site.review(VALIDATE, given)
    assert (found.allowed, "claim template 't' of namespace 'other'" in found.warnings) == (True, True)
    assert site.review(VALIDATE, given, given).warnings == ""
    for annotations in ({AUTO_MNNVL: "disabled"}, {MNNVL_GROUP: "none"}):
        given["metadata"]["annotations"] = annotations
        assert site.review(VALIDATE, given).warnings == ""
    given["metadata"]["annotations"] = ENABLED
    assert "claim template 't' of namespace 'other'" in site.review(VALIDATE, given).warnings
    del given["metadata"]["annotations"]
    assert workloads(settings=OFF).review(VALIDATE, given).warnings == ""
