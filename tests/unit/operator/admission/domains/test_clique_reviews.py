"""Reviews of PodCliques and scaling groups: no clique before all domains, and the claim at every write.

Views may lag or be incomplete; the claim comes from the right domain, and annotations are inherited.
"""

import copy

import msgspec
import pytest
from gkm.api.domain_capacity import CONFIG_MAP
from gkm.api.grove import PodCliqueSet
from gkm.api.mnnvl_metadata import AUTO_MNNVL, DOMAIN_LABEL, MNNVL_GROUP, PART_OF, REPLICA_INDEX
from gkm.api.network_settings import Network
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS
from gkm_operator.computedomains.objects import of_set
from gkm_operator.mnnvl.required import SetDomainKey
from support.grove.objects import (
    NAMESPACE,
    Json,
    clique,
    pod_clique_set,
)
from support.grove.tables import table
from support.operator.enrolled_cliques import CLIQUES, ENABLED, GROUPS, a_site, an_object, keys
from support.operator.workloads import BY_KIND, DOMAINS, OFF, SETS, SYSTEM, Workloads, workloads

BOTH = pytest.mark.parametrize("path", [CLIQUES, GROUPS])
CLAIM = {"main": ["mnnvl-claim"]}


@BOTH
def test_an_object_is_refused_until_all_domains_of_its_set_exist(path: str) -> None:
    site = a_site(replicas=6, present=1)
    found = site.review(path, an_object(path))
    assert not found.allowed
    assert "without test-pcs-1, test-pcs-2, test-pcs-3 and 2 more of its 6 ComputeDomains" in found.message
    made = site.view.pod_clique_set(NAMESPACE, "test-pcs")
    assert made is not None
    site.clear()
    site.create_set(pod_clique_set(replicas=6, annotations=ENABLED), *keys(6))
    site.observe()
    assert site.review(path, an_object(path)).allowed


@BOTH
def test_an_object_is_refused_while_a_domain_is_being_deleted(path: str) -> None:
    site = a_site()
    site.api.delete(DOMAINS, "test-pcs-1", NAMESPACE)
    site.observe()
    assert "with deleted test-pcs-1 of its 2" in site.review(path, an_object(path)).message


def test_a_domain_in_another_namespace_that_names_the_set_as_its_owner_counts_for_nothing() -> None:
    site = a_site(replicas=1, present=1)
    ours = site.api.get(DOMAINS, "test-pcs-0", NAMESPACE)
    other = copy.deepcopy(ours)
    other["metadata"] |= {"namespace": "other", "finalizers": ["other/hold"]}
    other["spec"]["channel"]["resourceClaimTemplate"]["name"] = "of-another-tenant"
    for field in ("uid", "resourceVersion"):
        del other["metadata"][field]
    site.api.create(DOMAINS, other)
    site.observe()
    found = site.review(CLIQUES, an_object())
    (claim,) = found.object["spec"]["podSpec"]["resourceClaims"]
    assert claim["resourceClaimTemplateName"] == "test-pcs-0"
    site.api.delete(DOMAINS, "test-pcs-0", "other")
    site.observe()
    assert site.review(CLIQUES, an_object()).allowed


def test_an_existing_clique_needs_its_own_domain_only() -> None:
    site = a_site(replicas=3, present=2)
    kept = site.review(CLIQUES, an_object(), an_object())
    assert (kept.allowed, kept.claims()) == (True, CLAIM)
    missing = site.review(CLIQUES, an_object(replica=2), an_object(replica=2))
    assert "without test-pcs-2" in missing.message
    assert site.review(GROUPS, an_object(GROUPS), an_object(GROUPS)).allowed


def test_an_existing_clique_keeps_the_claim_of_a_domain_that_is_being_deleted() -> None:
    site = a_site()
    site.api.delete(DOMAINS, "test-pcs-0", NAMESPACE)
    site.observe()
    assert not site.review(CLIQUES, an_object()).allowed
    kept = site.review(CLIQUES, an_object(), an_object())
    assert (kept.allowed, kept.claims()) == (True, CLAIM)


@pytest.mark.parametrize("old", [None, an_object()], ids=["CREATE", "UPDATE"])
def test_a_clique_gets_the_claim_of_the_successor_of_a_domain_that_is_being_deleted(old: Json | None) -> None:
    """A pod on a dead node holds the former one, so the controller gave the successor another name."""
    site = a_site(replicas=1, present=1)
    successor = copy.deepcopy(site.api.get(DOMAINS, "test-pcs-0", NAMESPACE))
    for field in ("uid", "resourceVersion"):
        del successor["metadata"][field]
    successor["metadata"]["name"] = successor["spec"]["channel"]["resourceClaimTemplate"]["name"] = "test-pcs-0-0123"
    site.api.delete(DOMAINS, "test-pcs-0", NAMESPACE)
    site.api.create(DOMAINS, successor)
    site.observe()
    found = site.review(CLIQUES, an_object(), old)
    (claim,) = found.object["spec"]["podSpec"]["resourceClaims"]
    assert claim["resourceClaimTemplateName"] == "test-pcs-0-0123"
    assert found.labels["gkm.io/compute-domain"] == "test-pcs-0-0123"


@BOTH
def test_an_object_that_is_being_deleted_passes(path: str) -> None:
    site = a_site(present=0)
    going = an_object(path, deletionTimestamp="2026-01-01T00:00:00Z")
    assert site.review(path, going, an_object(path)).allowed
    assert site.review(path, an_object(path), None, operation="DELETE", object=None).allowed
    assert site.review(path, an_object(path), subResource="status").allowed


@BOTH
def test_an_object_of_no_enrolled_set_is_admitted_unchanged(path: str) -> None:
    site = a_site(present=0, annotations={AUTO_MNNVL: "disabled"})
    found = site.review(path, an_object(path))
    assert found.allowed
    assert not found.claims() if path == CLIQUES else found.annotations == {AUTO_MNNVL: "disabled"}
    for labels in ({}, None, {PART_OF: "missing"}):
        assert not site.review(path, an_object(path, labels=labels)).changed


@BOTH
def test_with_the_feature_switched_off_an_enrolled_set_goes_on(path: str) -> None:
    site = a_site(settings=OFF)
    found = site.review(path, an_object(path))
    assert found.claims() == CLAIM if path == CLIQUES else found.annotations == ENABLED
    assert not a_site(present=1, settings=OFF).review(path, an_object(path)).allowed


@BOTH
def test_before_the_view_is_complete_objects_of_enrolled_sets_are_refused_and_others_admitted(path: str) -> None:
    site = Workloads()
    site.create_set(pod_clique_set(annotations=ENABLED), *keys(1))
    site.put(pod_clique_set("other"))
    found = site.review(path, an_object(path))
    assert not found.allowed
    assert "not read yet; try again" in found.message
    assert site.review(path, an_object(path, labels={PART_OF: "other"})).allowed
    site.observe()
    assert site.review(path, an_object(path)).allowed


@BOTH
def test_an_unreachable_api_server_refuses_objects_of_unknown_sets_only(path: str) -> None:
    site = a_site()
    site.api.fault = lambda verb, _: ApiError(0, "Unreachable", "away") if verb == "get" else None
    assert site.review(path, an_object(path)).allowed
    found = site.review(path, an_object(path, labels={PART_OF: "unknown"}))
    assert "PodCliqueSet unknown cannot be read: Unreachable: away; try again" in found.message


@BOTH
def test_until_it_is_known_who_manages_domains_objects_of_enrolled_sets_are_refused_and_others_admitted(
    path: str,
) -> None:
    site = a_site()
    site.put(pod_clique_set("other"))
    site.api.delete(CONFIGMAPS, CONFIG_MAP, SYSTEM)
    for written in (False, True):
        if written:
            site.publish(grove_manages=None)
        site.observe()
        found = site.review(path, an_object(path))
        assert not found.allowed, "an answer that is not known yet counts as 'Grove does not manage ComputeDomains'"
        assert "gkm-domains does not say whether Grove manages ComputeDomains" in found.message
        assert "see the log of gkm-controllers; try again" in found.message
        assert site.review(path, an_object(path, labels={PART_OF: "other"})).allowed
    site.publish()
    site.observe()
    assert site.review(path, an_object(path)).allowed


@BOTH
def test_where_grove_manages_domains_nothing_is_changed(path: str) -> None:
    site = a_site(present=0)
    site.publish(grove_manages=True)
    site.observe()
    found = site.review(path, an_object(path))
    assert found.allowed
    assert not found.changed


@BOTH
@table(
    "kind, version",
    [
        ("of its set", "PodCliqueSet", "v1alpha1"),
        ("of its set in another version", "PodCliqueSet", "v1beta1"),
        ("of a scaling group", "PodCliqueScalingGroup", "v1alpha1"),
    ],
)
def test_an_object_that_grove_controls_is_refused_until_its_set_is_found(path: str, kind: str, version: str) -> None:
    site = workloads()
    owner = {"apiVersion": f"grove.io/{version}", "kind": kind, "name": "test-pcs", "uid": "u", "controller": True}
    given = an_object(path, owner=owner)
    found = site.review(path, given)
    assert not found.allowed
    assert "PodCliqueSet test-pcs that owns the PodClique is not found; try again" in found.message
    made = site.create_set(pod_clique_set(annotations=ENABLED), *keys(1))
    given["metadata"]["ownerReferences"][0]["uid"] = made.metadata.uid
    site.view._domains._list()  # the watch of sets lags
    found = site.review(path, given)
    assert (found.allowed, found.changed) == (True, True)


def test_an_object_of_a_former_set_joins_no_domain_of_its_successor() -> None:
    owner = {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "name": "test-pcs", "uid": "former"}
    found = a_site().review(CLIQUES, an_object(owner=owner | {"controller": True}))
    assert "PodCliqueSet test-pcs that owns the PodClique is not found" in found.message


def test_kinds_by_name_are_those_of_the_cluster() -> None:
    assert workloads().view.pod_clique_set(NAMESPACE, "missing") is None
    assert set(BY_KIND) == {"PodCliqueSet", "ComputeDomain", "ResourceClaimTemplate", "ResourceClaim"}


def test_the_claim_the_label_and_nothing_else_is_added() -> None:
    site = a_site()
    given = an_object(replica=1)
    found = site.review(CLIQUES, given)
    expected = copy.deepcopy(given)
    expected["metadata"]["labels"][DOMAIN_LABEL] = "test-pcs-1"
    spec = expected["spec"]["podSpec"]
    spec["resourceClaims"] = [{"name": "mnnvl-claim", "resourceClaimTemplateName": "test-pcs-1"}]
    spec["containers"][0]["resources"]["claims"] = [{"name": "mnnvl-claim"}]
    assert found.object == expected
    again = site.review(CLIQUES, found.object, found.object)
    assert (again.allowed, again.changed) == (True, False)
    assert [verb for verb, _, _ in site.api.calls if verb == "get"] == []


def test_a_writer_that_drops_the_claim_gets_it_again() -> None:
    site = a_site()
    injected = site.review(CLIQUES, an_object()).object
    replaced = site.review(CLIQUES, an_object(), injected)
    assert replaced.object == injected


def test_a_clique_finds_its_set_by_its_owner() -> None:
    site = a_site()
    uid = site.view.pod_clique_set(NAMESPACE, "test-pcs").metadata.uid  # type: ignore[union-attr] # it exists
    owner = {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "name": "test-pcs", "uid": uid}
    controlled = an_object(owner=owner | {"controller": True})
    assert site.review(CLIQUES, controlled).claims() == CLAIM


def test_a_set_made_anew_under_the_same_name_is_read_again() -> None:
    site = a_site()
    site.api.delete(SETS, "test-pcs", NAMESPACE)
    new = site.create_set(pod_clique_set(annotations={AUTO_MNNVL: "disabled"}))
    owner = {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "name": "test-pcs", "uid": new.metadata.uid}
    found = site.review(CLIQUES, an_object(owner=owner | {"controller": True}))
    assert found.allowed
    assert not found.changed


@BOTH
def test_a_replica_that_the_watch_has_not_shown_waits_for_its_domain(path: str) -> None:
    site = a_site()
    site.api.merge(SETS, "test-pcs", {"spec": {"replicas": 3}}, NAMESPACE)
    found = site.review(path, an_object(path, replica=2))
    assert not found.allowed
    assert "without test-pcs-2 of its 3 ComputeDomains" in found.message


def test_a_group_that_the_watch_has_not_shown_waits_for_its_domain() -> None:
    def template(gpus: int) -> list[Json]:
        return [clique("worker", annotations={MNNVL_GROUP: "a"}), clique("late", gpus, annotations={MNNVL_GROUP: "b"})]

    site = Workloads()
    site.create_set(pod_clique_set("test-pcs", *template(0)), SetDomainKey(0, "a"))
    site.observe()
    assert site.review(CLIQUES, an_object(name="worker")).claims() == CLAIM
    site.api.merge(SETS, "test-pcs", {"spec": {"template": {"cliques": template(8)}}}, NAMESPACE)
    assert "without test-pcs-0-b of its 2" in site.review(CLIQUES, an_object(name="late")).message


def test_a_replica_beyond_the_set_joins_its_domain_as_long_as_that_exists() -> None:
    site = a_site(replicas=1, present=2)
    assert site.review(CLIQUES, an_object(replica=1)).claims() == CLAIM
    found = site.review(CLIQUES, an_object(replica=2))
    assert not found.allowed
    assert "with 1 replicas requires no ComputeDomain test-pcs-2" in found.message


def foreign(site: Workloads, name: str) -> None:
    """Let a domain be that of another operator, such as Grove before its own feature was switched off."""
    site.api.merge(DOMAINS, name, {"metadata": {"labels": {"gkm.io/written-by": None}}}, NAMESPACE)
    site.observe()


def test_a_clique_gets_the_claim_of_a_domain_that_another_operator_wrote() -> None:
    site = a_site()
    foreign(site, "test-pcs-0")
    found = site.review(CLIQUES, an_object())
    assert (found.claims(), found.templates()) == (CLAIM, {"mnnvl-claim": "test-pcs-0"})
    assert found.labels[DOMAIN_LABEL] == "test-pcs-0"
    assert site.review(CLIQUES, an_object(), found.object).object == found.object
    site.publish(grove_manages=True)
    site.observe()
    assert not site.review(CLIQUES, an_object()).changed


def test_a_domain_of_another_operator_that_is_being_deleted_delays_only_its_own_new_cliques() -> None:
    site = a_site()
    foreign(site, "test-pcs-0")
    site.api.delete(DOMAINS, "test-pcs-0", NAMESPACE)
    site.observe()
    assert site.review(CLIQUES, an_object(replica=1)).claims() == CLAIM
    assert site.review(GROUPS, an_object(GROUPS)).allowed
    assert "with deleted test-pcs-0 of its 2" in site.review(CLIQUES, an_object()).message
    assert site.review(CLIQUES, an_object(), an_object()).claims() == CLAIM


def test_a_domain_whose_name_no_label_can_have_gets_its_claim_and_no_label() -> None:
    site = a_site(replicas=1, present=0, settings=Network(auto_mnnvl_enabled=True, placement="required"))
    name = "test-pcs-0-" + "x" * 60
    owner = site.api.get(SETS, "test-pcs", NAMESPACE)
    made = of_set(msgspec.convert(owner, PodCliqueSet), SetDomainKey(0, "")).manifest(name, "2026-01-01T00:00:00Z")
    site.api.create(DOMAINS, made)
    foreign(site, name)
    found = site.review(CLIQUES, an_object())
    assert found.templates() == {"mnnvl-claim": name}
    assert DOMAIN_LABEL not in found.labels
    assert "affinity" not in found.object["spec"]["podSpec"]


def test_the_template_of_a_domain_under_another_name_is_used() -> None:
    site = a_site(replicas=1, present=1)
    channel = {"channel": {"resourceClaimTemplate": {"name": "of-that-domain"}}}
    site.api.merge(DOMAINS, "test-pcs-0", {"spec": channel}, NAMESPACE)
    site.observe()
    found = site.review(CLIQUES, an_object())
    assert found.templates() == {"mnnvl-claim": "of-that-domain"}
    assert found.labels[DOMAIN_LABEL] == "test-pcs-0"


@table(
    "labels",
    [
        ("no labels at all", None),
        ("an empty map", {}),
        ("others", {"a": "b"}),
        ("a wrong one", {DOMAIN_LABEL: "another"}),
    ],
)
def test_the_label_is_added_beside_others(labels: dict[str, str] | None) -> None:
    site = a_site(replicas=1, present=1)
    needed = {PART_OF: "test-pcs", REPLICA_INDEX: "0"}
    found = site.review(CLIQUES, an_object(labels=None if labels is None else labels | needed))
    assert found.labels == ({} if labels is None else labels | needed | {DOMAIN_LABEL: "test-pcs-0"})


@table(
    "annotations, expected",
    [
        ("none yet", None, ENABLED),
        ("others", {"a": "b"}, {"a": "b"} | ENABLED),
        ("one of its own", {AUTO_MNNVL: "disabled"}, {AUTO_MNNVL: "disabled"}),
    ],
)
def test_a_scaling_group_inherits_what_it_has_not_itself(
    annotations: dict[str, str] | None, expected: dict[str, str]
) -> None:
    given = an_object(GROUPS, annotations=annotations)
    assert a_site().review(GROUPS, given).annotations == expected


def test_the_template_of_a_scaling_group_is_found_by_its_exact_name() -> None:
    groups = [
        {"name": name, "cliqueNames": ["worker"], "annotations": {MNNVL_GROUP: value}}
        for name, value in (("b", "short"), ("a-b", "long"))
    ]
    site = Workloads()
    site.create_set(
        pod_clique_set(annotations=None, scaling_groups=groups), SetDomainKey(0, "short"), SetDomainKey(0, "long")
    )
    site.observe()
    assert site.review(GROUPS, an_object(GROUPS, name="a-b")).annotations == {MNNVL_GROUP: "long"}
