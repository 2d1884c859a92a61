"""Reviews of group templates and pools on a real kube-apiserver, with the webhooks, account and rights that ship."""

import copy

import pytest
from gkm.kube.client import HttpApi, connect
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS
from support.cluster.cluster import KubectlFailed
from support.grove.tables import table
from support.operator.admission_process import ACCOUNT
from support.operator.group_templates import (
    DOMAIN,
    POOL_OBJECTS,
    TEMPLATES,
    Json,
    config_map,
    pool,
    template,
)
from support.operator.template_admission import DRY_RUNS, NAMESPACES, SYSTEM, TEAM, Site

SEED_DOMAIN = DOMAIN | {"metadata": {"name": "compute-domain-{{WF_GROUP_UUID}}"}}
PART = {"apiVersion": DOMAIN["apiVersion"], "kind": "ComputeDomain", "metadata": {"name": "part"}, "spec": {}}
WHOLE = PART | {"spec": {"channel": {"resourceClaimTemplate": {"name": "part"}}}}
POD_GROUP = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "x"}}


def domain_with(**fields: object) -> Json:
    """Return the ComputeDomain with further fields in its spec."""
    made = copy.deepcopy(DOMAIN)
    made["spec"] |= fields
    return made


@table(
    "value, said",
    [
        ("no kind", {"apiVersion": "v1", "metadata": {"name": "x"}}, "kind is missing"),
        ("no name", {"apiVersion": "v1", "kind": "ConfigMap"}, "metadata.name is missing"),
        ("a syntax error", config_map(data={"a": "{{ WF_ID"}), "data.a"),
        ("an unknown variable", config_map(data={"a": "{{ WF_TYPO }}"}), "WF_TYPO"),
        ("an attribute escape", config_map(data={"a": "{{ ''.__class__.__mro__ }}"}), "__class__"),
        ("a loop that hangs", config_map(data={"a": "{% for i in range(10**9) %}{% endfor %}"}), "data.a"),
        ("a kind that is not allowed", POD_GROUP | {"kind": "Job", "apiVersion": "batch/v1"}, "is not allowed"),
        ("a cluster-scoped kind", config_map() | {"kind": "Namespace"}, "Namespace is cluster-scoped"),
        ("an unknown field of a built-in kind", config_map(dta={}), 'unknown field "dta"'),
        ("a wrong type of a built-in kind", config_map(data=["a"]), "data"),
        ("an unknown field of a custom kind", domain_with(nodes=2), 'field "spec.nodes"'),
        ("a wrong value of a custom kind", domain_with(numNodes=-1), "spec.numNodes"),
        ("a wrong type of a custom kind", domain_with(numNodes="many"), "spec.numNodes"),
        ("a name that no object can have", config_map("Upper_{{ WF_ID }}"), "metadata.name"),
        ("an invalid Service", config_map(spec={"ports": [{"port": 99999}]}) | {"kind": "Service"}, "ports"),
    ],
)
def test_a_bad_template_is_refused_by_the_real_webhook(site: Site, value: Json, said: str) -> None:
    message = site.refusal(template("bad", value))
    assert 'admission webhook "grouptemplates.task-groups.gkm.io" denied the request' in message
    assert said in message
    assert not site.cluster.exists("grouptemplate", "bad")


def test_a_good_template_is_admitted_and_its_sample_is_not_stored(site: Site) -> None:
    site.create(template("good", config_map("good", data={"tasks": "{{ TASKS | length }}"})))
    site.create(template("domain", SEED_DOMAIN))
    stored = {one["metadata"]["name"] for one in site.cluster.objects.every("configmaps", DRY_RUNS)}
    assert stored <= {"kube-root-ca.crt"}
    assert site.cluster.objects.every("computedomains", DRY_RUNS) == []


@table(
    "value, said",
    [
        ("a kind that is not installed", POD_GROUP, "PodGroup.scheduling.x-k8s.io is not installed"),
        ("a kind without a right", config_map("secret") | {"kind": "Secret"}, "cannot create resource"),
        ("a namespace", config_map() | {"metadata": {"name": "x", "namespace": "other"}}, "namespace is ignored"),
        ("a part of an object", PART, "lacks fields"),
    ],
)
def test_what_is_not_checked_reaches_the_author_as_a_warning(site: Site, value: Json, said: str) -> None:
    found = site.warnings(template("warned", value))
    site.cluster.objects.delete_named("grouptemplate", "warned")
    assert said in found


def test_the_author_needs_the_right_to_create_the_kind_everywhere(site: Site) -> None:
    def write(user: str, *groups: str) -> str:
        return site.refusal(template(f"of-{user}"), site.api_of(user, "authors", *groups))

    assert "user 'mallory' may not create ConfigMap in all namespaces" in write("mallory")
    assert "user 'eve' may not create ConfigMap in all namespaces" in write("eve")
    assert write("alice") == ""
    assert write("bob", "platform") == ""


def test_a_change_of_a_template_needs_the_right_too(site: Site) -> None:
    site.create(template("changed"))
    mallory = site.api_of("mallory", "authors")
    changed = {"spec": {"template": config_map(data={"a": "1"})}}
    with pytest.raises(ApiError, match="may not create ConfigMap"):
        mallory.merge(TEMPLATES, "changed", changed)
    mallory.merge(TEMPLATES, "changed", {"metadata": {"labels": {"a": "b"}}})
    site.api_of("alice", "authors").merge(TEMPLATES, "changed", changed)


def test_a_template_that_is_being_deleted_is_no_way_around_the_right(site: Site) -> None:
    """A finalizer can hold it for ever."""
    mallory = site.api_of("mallory", "authors")
    site.create(template("leaving"))
    mallory.merge(TEMPLATES, "leaving", {"metadata": {"finalizers": ["test.example/held"]}})
    connect(str(site.cluster.kubeconfig)).delete(TEMPLATES, "leaving")
    with pytest.raises(ApiError, match="may not create ConfigMap"):
        mallory.merge(TEMPLATES, "leaving", {"spec": {"template": config_map(data={"a": "1"})}})
    refused = "or are being deleted: 'leaving'"
    # The watch of admission may not show the deletion yet.
    site.cluster.until(lambda: refused in site.refusal_of_a_try(pool("late", "leaving")), "the deletion to be seen")
    assert refused in site.refusal(pool("late", "leaving"))
    mallory.merge(TEMPLATES, "leaving", {"metadata": {"finalizers": None}})
    site.cluster.until(lambda: not site.cluster.exists("grouptemplate", "leaving"), "the template to go")


def test_the_account_of_admission_creates_nothing_but_dry_runs(site: Site) -> None:
    admission = connect(str(site.cluster.kubeconfig_for(ACCOUNT)))
    assert isinstance(admission, HttpApi)
    placed = config_map("real") | {"metadata": {"name": "real", "namespace": DRY_RUNS}}
    admission.dry_run(CONFIGMAPS, placed)
    with pytest.raises(ApiError, match="the namespace gkm-dry-runs is for dry runs") as refused:
        admission.create(CONFIGMAPS, placed)
    assert refused.value.reason == "Forbidden"
    with pytest.raises(ApiError, match="for dry runs"):
        site.api.create(CONFIGMAPS, placed)
    for space in (TEAM, SYSTEM):
        elsewhere = config_map("real") | {"metadata": {"name": "real", "namespace": space}}
        with pytest.raises(ApiError, match="cannot create resource"):
            admission.dry_run(CONFIGMAPS, elsewhere)


def test_the_namespace_of_dry_runs_gets_what_the_control_plane_makes_in_each(site: Site) -> None:
    site.cluster.until(lambda: site.cluster.exists("serviceaccount", "default", DRY_RUNS), "its account")
    site.cluster.until(lambda: site.cluster.exists("configmap", "kube-root-ca.crt", DRY_RUNS), "its CA")
    site.api.merge(NAMESPACES, DRY_RUNS, {"metadata": {"labels": {"a": "b"}}})


def test_a_pool_is_refused_with_its_fault(site: Site) -> None:
    site.create(template("v1beta1", DOMAIN))
    site.create(template("v1", DOMAIN | {"apiVersion": "resource.nvidia.com/v1"}))
    site.create(template("part", PART))
    site.create(template("whole", WHOLE))
    assert "do not exist, or are being deleted: 'does-not-exist'" in site.refusal(pool("bad", "does-not-exist"))
    assert "in two versions" in site.refusal(pool("bad", "v1beta1", "v1"))
    assert "spec.channel: Required value" in site.refusal(pool("bad", "part"))
    assert site.refusal(pool("good-pool", "part", "whole")) == ""
    with pytest.raises(ApiError, match="or are being deleted: 'gone'"):
        site.api.merge(POOL_OBJECTS, "good-pool", {"spec": {"commonGroupTemplates": ["gone"]}})


def test_a_template_in_use_is_not_deleted_nor_broken(site: Site) -> None:
    site.create(template("shared"))
    site.create(template("beside", config_map("beside")))
    site.create(pool("nvlink-pool", "shared", "beside"))
    with pytest.raises(ApiError, match="'shared' is in use by Pools: nvlink-pool") as refused:
        site.api.delete(TEMPLATES, "shared")
    assert refused.value.status == 403
    newer = config_map() | {"apiVersion": "v2"}
    with pytest.raises(ApiError, match="Pool 'nvlink-pool' would break"):
        site.api.merge(TEMPLATES, "beside", {"spec": {"template": newer}})
    site.api.merge(TEMPLATES, "shared", {"metadata": {"labels": {"shared": "yes"}}})
    with pytest.raises(KubectlFailed, match="'shared' is in use by Pools: nvlink-pool"):
        # A request to delete a collection names no object.
        site.cluster.kubectl("delete", "--raw=/apis/gkm.io/v1alpha1/grouptemplates?labelSelector=shared%3Dyes")
    site.api.merge(POOL_OBJECTS, "nvlink-pool", {"spec": {"commonGroupTemplates": ["beside"]}})
    site.api.delete(TEMPLATES, "shared")
    site.api.delete(POOL_OBJECTS, "nvlink-pool")
    site.api.delete(TEMPLATES, "beside")
