"""Reviews of PodCliqueSets beyond Grove's tables: claims, the dialect, another operator, limits, warnings, failures.

The watch holds a large set as an outline: it is read, whole, for each review. The fit check says what a set needs in
whole nodes, and which free nodes the cluster has.
"""

from typing import Any

import pytest
from gkm.api.domain_capacity import CliqueCapacity, DomainCapacity, NodePool
from gkm.api.mnnvl_metadata import AUTO_MNNVL, MNNVL_GROUP
from gkm.api.network_settings import Network
from gkm.kube.errors import ApiError
from gkm_operator.admission.domains.cluster_view import MAX_CLAIMS
from gkm_operator.admission.domains.sets import Need, needs, warnings
from support.grove.objects import (
    NAMESPACE,
    Json,
    claim_template,
    clique,
    container,
    pod_clique_set,
    scaling_group,
    shared_claim,
    sharing_set,
)
from support.grove.tables import table
from support.grove.typed import GPUS, a_set, device_classes
from support.operator.enrolled_cliques import CLIQUES, an_object, keys
from support.operator.workloads import OFF, ON, Workloads, workloads

DEFAULT, VALIDATE = "/podcliquesets/default", "/podcliquesets/validate"
ENABLED = {AUTO_MNNVL: "enabled"}
CLAIMED = clique(
    "worker",
    containers=[{"name": "main", "resources": {"claims": [{"name": "gpus"}]}}],
    resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "gpus"}],
)
PART = container("part", 1, "nvidia.com/mig-1g.5gb")

MANY = [clique(f"worker-{number}") for number in range(64)]


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
    site.publish(grove_manages=True)
    site.observe()
    assert site.review(VALIDATE, pod_clique_set(annotations=ENABLED)).allowed
    on = workloads()
    assert on.review(DEFAULT, pod_clique_set()).changed
    on.publish(grove_manages=True)
    on.observe()
    assert not on.review(DEFAULT, pod_clique_set()).changed


def test_until_it_is_known_who_manages_domains_a_set_is_neither_enrolled_nor_refused_for_the_switch() -> None:
    on, off = workloads(), workloads(settings=OFF)
    for site in (on, off):
        site.publish(grove_manages=None)
        site.observe()
    enrolled, plain = pod_clique_set(annotations=ENABLED), pod_clique_set()
    unknown = "gkm-domains does not say whether Grove manages ComputeDomains"
    assert unknown in on.review(DEFAULT, plain).message, "a set is enrolled for ever where Grove may manage its domains"
    assert unknown in off.review(VALIDATE, enrolled).message, "a set is refused as if Grove's own switch were off"
    assert on.review(DEFAULT, enrolled).allowed
    assert on.review(DEFAULT, pod_clique_set("cpu", clique("worker", 0))).allowed
    assert on.review(VALIDATE, enrolled).allowed
    assert off.review(DEFAULT, plain).allowed
    assert off.review(VALIDATE, plain).allowed


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


def a_site() -> Workloads:
    site = Workloads(ON)
    site.create_set(pod_clique_set("test-pcs", *MANY, replicas=2, annotations=ENABLED), *keys(2))
    site.observe()
    return site


def test_its_cliques_get_the_claim() -> None:
    site = a_site()
    held = site.view.pod_clique_set(NAMESPACE, "test-pcs")
    assert held is not None
    assert held.metadata.oversized.startswith("spec.template.cliques: it takes ")
    found = site.review(CLIQUES, an_object(replica=1, name="worker-7"))
    assert found.allowed
    spec = found.object["spec"]["podSpec"]
    assert spec["resourceClaims"] == [{"name": "mnnvl-claim", "resourceClaimTemplateName": "test-pcs-1"}]


def test_a_set_that_cannot_be_read_is_no_reason_to_admit() -> None:
    site = a_site()
    site.api.fault = lambda verb, _: ApiError(0, "Unreachable", "away") if verb == "get" else None
    found = site.review(CLIQUES, an_object(replica=1, name="worker-7"))
    assert not found.allowed
    assert "PodCliqueSet test-pcs cannot be read" in found.message


def a_clique(name: str, *free: int, products: tuple[str, ...] = ("GB200", "GB300")) -> CliqueCapacity:
    """A clique with a pool of 18 nodes of each product, of which that many are free."""
    pools = (NodePool(product, 4, 18, count) for product, count in zip(products, free, strict=False))
    return CliqueCapacity(name, tuple(pools))


def needed(*cliques: Json, **fields: Any) -> list[Need]:  # noqa: ANN401 -- the builder's
    return needs(a_set(*cliques, **fields), GPUS, device_classes)


@table(
    "found, nodes",
    [
        ("each pod takes a node", needed(clique("a", replicas=3), annotations=ENABLED), {"": 3}),
        ("two cliques add up", needed(clique("a", replicas=3), clique("b"), annotations=ENABLED), {"": 4}),
        (
            "cliques without GPUs need none",
            needed(clique("a"), clique("b", 0, replicas=9), annotations=ENABLED),
            {"": 1},
        ),
        (
            "a scaling group multiplies its cliques",
            needed(clique("a", replicas=2), annotations=ENABLED, scaling_groups=[scaling_group("sg", "a", replicas=3)]),
            {"": 6},
        ),
        (
            "groups are apart",
            needed(
                clique("a", annotations={MNNVL_GROUP: "x"}), clique("b", replicas=2, annotations={MNNVL_GROUP: "y"})
            ),
            {"x": 1, "y": 2},
        ),
        ("a clique that withdraws needs none", needed(clique("a", annotations={MNNVL_GROUP: "none"})), {}),
    ],
)
def test_a_domain_needs_a_node_for_each_pod_that_requests_gpus(found: list[Need], nodes: dict[str, int]) -> None:
    assert {need.group: need.nodes for need in found} == nodes


@table(
    "made, gpus",
    [
        ("a limit", clique("a", 4), 4),
        (
            "a request only",
            clique("a", containers=[{"name": "c", "resources": {"requests": {"nvidia.com/gpu": 4}}}]),
            4,
        ),
        ("two containers", clique("a", containers=[container("c", 2), container("d", 2)]), 4),
        ("a part of a GPU", clique("a", containers=[container("c", 1, "nvidia.com/mig-1g.5gb")]), 0),
        ("another notation", clique("a", containers=[container("c", "1e1")]), 0),
        ("a number beyond all", clique("a", containers=[container("c", "9" * 5000)]), 0),
        ("a claim may add some", clique("a", 4, resourceClaims=[{"name": "x"}]), 0),
    ],
)
def test_the_gpus_of_a_pod_are_counted_where_resources_show_them(made: Json, gpus: int) -> None:
    assert [dict(need.gpus) for need in needed(made, annotations=ENABLED)] == [{"a": gpus}]


FOUR = [Need("", 2, 4, {"worker": 4})]

EIGHT_GPUS_A_NODE = CliqueCapacity("a.1", (NodePool("GB200", 8, 18, 18),))


@table(
    "capacity, expected",
    [
        ("enough for all", DomainCapacity((a_clique("a.1", 8),)), []),
        ("enough in two cliques", DomainCapacity((a_clique("a.1", 4), a_clique("a.2", 5))), []),
        (
            "the largest clique is too small",
            DomainCapacity((a_clique("a.1", 1), a_clique("a.2", 2))),
            ["needs 4 whole nodes in one clique; the largest free clique has 2 (clique a.2 with 18 nodes)"],
        ),
        ("enough for some replicas", DomainCapacity((a_clique("a.1", 7),)), ["enough for 1 of 2 replicas"]),
        ("no clique", DomainCapacity(), ["no node has an NVLink clique"]),
        (
            "two products",
            DomainCapacity((a_clique("a.1", 9), a_clique("a.2", 0, 9))),
            ["2 GPU products (GB200, GB300)"],
        ),
        (
            "free nodes without a fabric",
            DomainCapacity((a_clique("a.1", 9),), (NodePool("H100", 8, 5, 3),)),
            ["nodes without an NVLink fabric: 3"],
        ),
        ("none of them is free", DomainCapacity((a_clique("a.1", 9),), (NodePool("H100", 8, 5, 0),)), []),
        ("a pod of half a node", DomainCapacity((EIGHT_GPUS_A_NODE,)), ["requests 4 of the 8 GPUs of a node"]),
    ],
)  # fmt: skip
def test_each_shortage_is_a_warning(capacity: DomainCapacity, expected: list[str]) -> None:
    found = list(warnings(FOUR, [], capacity, one_clique=False))
    assert len(found) == len(expected)
    assert all(text in warning for text, warning in zip(expected, found, strict=True))


@table(
    "capacity, expected",
    [
        ("products of different cliques do not mix", DomainCapacity((a_clique("a.1", 9), a_clique("a.2", 0, 9))), 0),
        ("a pool is large enough", DomainCapacity((a_clique("a.1", 9, 1),)), 0),
        ("only both pools are, another clique has one", DomainCapacity((a_clique("a.1", 3, 3), a_clique("a.2", 6))), 0),
        ("no clique has a large pool", DomainCapacity((a_clique("a.1", 3, 3), a_clique("a.2", 2, 3))), 1),
        (
            "nodes without a fabric are out of reach",
            DomainCapacity((a_clique("a.1", 9),), (NodePool("H100", 8, 5, 3),)),
            0,
        ),
    ],
)  # fmt: skip
def test_with_an_affinity_to_one_clique_only_its_own_products_mix(capacity: DomainCapacity, expected: int) -> None:
    found = [text for text in warnings(FOUR, [], capacity, one_clique=True) if "products" in text or "fabric" in text]
    assert len(found) == expected


def test_a_domain_of_one_node_spans_nothing() -> None:
    mixed = DomainCapacity((a_clique("a.1", 9, 9),), (NodePool("H100", 8, 5, 3),))
    assert list(warnings([Need("", 1, 1, {"a": 4})], [], mixed, one_clique=False)) == []


def test_a_group_is_named() -> None:
    (found,) = warnings([Need("prefill", 1, 2, {})], [], DomainCapacity(), one_clique=False)
    assert found.startswith("group 'prefill' of a replica needs 2 whole nodes")
