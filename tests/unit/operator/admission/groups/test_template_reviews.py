"""Reviews of GroupTemplates and Pools: what is refused, what is warned of, and who may write them."""

from functools import partial

import pytest
from gkm.api.task_group_settings import AllowedKind, TaskGroups
from gkm.api.task_groups import MAX_TEMPLATE_BYTES, MAX_TEMPLATES
from gkm.kube.errors import ApiError
from gkm.kube.resources import Resource
from gkm.templates.rendering.process import RenderingProcess
from gkm_operator.admission.groups.cluster_view import Partners
from gkm_operator.admission.groups.decisions import DRY_RUN_SECONDS, review_pool
from support.grove.tables import table
from support.operator.group_templates import (
    DOMAIN,
    POOL_OBJECTS,
    TEMPLATES,
    GroupTemplates,
    Json,
    config_map,
    held,
    pool,
    refusing,
    template,
)

NAMESPACED = config_map() | {"metadata": {"name": "x", "namespace": "theirs"}}
POD_GROUP = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "x"}}


@table(
    "value",
    [
        ("a ConfigMap", config_map(data={"tasks": "{{ TASKS | length }}"})),
        ("the ComputeDomain of the seed", DOMAIN),
        ("every variable", config_map(data={"all": "{{WF_ID}} {{WF_UUID}} {{WF_GROUP_NAME}} {{WF_POOL}}"})),
    ],
)
def test_a_good_template_is_admitted_without_a_warning(site: GroupTemplates, value: Json) -> None:
    found = site.write(template(value=value))
    assert (found.allowed, found.warnings, found.message) == (True, "", "")
    (tried,) = site.checks.dry_runs
    assert tried["kind"] == value["kind"]
    assert "{{" not in str(tried)


@table(
    "value, said",
    [
        ("no apiVersion", {"kind": "ConfigMap", "metadata": {"name": "x"}}, "apiVersion is missing"),
        ("no kind", {"apiVersion": "v1", "metadata": {"name": "x"}}, "kind is missing"),
        ("no metadata", {"apiVersion": "v1", "kind": "ConfigMap"}, "metadata.name is missing"),
        ("no name", config_map("") | {"data": {}}, "metadata.name is missing"),
        ("a syntax error", config_map(data={"a": "{{ WF_ID"}), "data.a"),
        ("an unknown variable", config_map(data={"a": "{{ WF_TYPO }}"}), "WF_TYPO"),
        ("an attribute escape", config_map(data={"a": "{{ ''.__class__ }}"}), "__class__"),
        ("a kind that is not allowed", config_map() | {"kind": "Secret"}, "'Secret' is not allowed"),
        ("a kind of RBAC", POD_GROUP | {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}, "not allowed"),
        ("an expression as the kind", config_map() | {"kind": "{{ WF_ID }}"}, "kind cannot contain expressions"),
        ("an owner", config_map() | {"metadata": {"name": "x", "ownerReferences": []}}, "'ownerReferences' cannot"),
        ("a finalizer", config_map() | {"metadata": {"name": "x", "finalizers": ["a/b"]}}, "'finalizers' cannot"),
        ("too large", config_map(data={"a": "x" * (128 << 10)}), "the limit is 131072"),
    ],
)
def test_a_bad_template_is_refused_with_its_fault(site: GroupTemplates, value: Json, said: str) -> None:
    found = site.write(template(value=value))
    assert not found.allowed
    assert said in found.message
    assert site.checks.dry_runs == []


def test_all_faults_are_listed_and_at_most_four_of_them(site: GroupTemplates) -> None:
    data = {f"key-{number}": "{{ NO_%d }}" % number for number in range(9)}  # noqa: UP031 -- braces
    found = site.write(template(value=config_map(data=data)))
    assert found.message.count("NO_") == 4
    assert found.message.endswith("; and 5 more")


def test_a_namespace_is_ignored_with_a_warning_or_refused(site: GroupTemplates, renderer: RenderingProcess) -> None:
    found = site.write(template(value=NAMESPACED))
    assert found.allowed
    assert "metadata.namespace is ignored" in found.warnings
    (tried,) = site.checks.dry_runs
    assert tried["metadata"]["namespace"] == "gkm-dry-runs"
    strict = GroupTemplates(renderer, TaskGroups(enabled=True, namespaces="enforce"))
    assert "metadata.namespace must not be set" in strict.write(template(value=NAMESPACED)).message


def test_a_kind_that_is_named_is_allowed(renderer: RenderingProcess) -> None:
    named = GroupTemplates(renderer, TaskGroups(enabled=True, allowed_kinds=[AllowedKind("Secret")]))
    named.checks.kinds["v1", "Secret"] = Resource("v1", "Secret", "secrets", namespaced=True, type=dict)
    assert named.write(template(value=config_map() | {"kind": "Secret"})).allowed
    assert "not allowed" in named.write(template()).message


def test_the_author_must_have_the_right_to_create_the_kind(site: GroupTemplates) -> None:
    user = {"username": "eve", "uid": "7", "groups": ["people"], "extra": {"key": ["value"]}}
    found = site.write(template(value=DOMAIN), userInfo=user)
    assert not found.allowed
    assert "user 'eve' may not create ComputeDomain.resource.nvidia.com in all namespaces" in found.message
    ((asked, group, plural),) = site.checks.asked
    assert (asked.username, asked.uid, asked.groups, asked.extra) == ("eve", "7", ("people",), {"key": ("value",)})
    assert (group, plural) == ("resource.nvidia.com", "computedomains")
    assert site.checks.dry_runs == []


def test_the_right_to_a_kind_that_is_not_installed_is_asked_by_its_configured_name(renderer: RenderingProcess) -> None:
    kinds = [AllowedKind("Index", "test.example", "indices")]
    site = GroupTemplates(renderer, TaskGroups(enabled=True, allowed_kinds=kinds))
    value = config_map() | {"apiVersion": "test.example/v1", "kind": "Index"}
    found = site.write(template(value=value))
    assert found.allowed
    assert "Index.test.example is not installed" in found.warnings
    assert [asked[1:] for asked in site.checks.asked] == [("test.example", "indices")]
    assert not site.write(template(value=value), userInfo={"username": "eve"}).allowed


def test_a_cluster_scoped_kind_is_refused(renderer: RenderingProcess) -> None:
    site = GroupTemplates(renderer, TaskGroups(enabled=True, allowed_kinds=[AllowedKind("Namespace")]))
    site.checks.kinds["v1", "Namespace"] = Resource("v1", "Namespace", "namespaces", namespaced=False, type=dict)
    found = site.write(template(value=config_map() | {"kind": "Namespace"}))
    assert "Namespace is cluster-scoped" in found.message
    assert site.checks.dry_runs == []


def test_what_the_api_server_refuses_is_refused_with_its_reason(site: GroupTemplates) -> None:
    site.checks.refuse = refusing('unknown field "dta"')
    found = site.write(template())
    assert not found.allowed
    assert 'with sample values, the API server refuses the object: unknown field "dta"' in found.message


def test_a_part_of_an_object_is_admitted_with_a_warning(site: GroupTemplates) -> None:
    site.checks.refuse = refusing("spec.channel: Required value", incomplete=True)
    found = site.write(template())
    assert found.allowed
    assert "other templates of its pools must add: spec.channel: Required value" in found.warnings


def test_a_field_that_a_patch_deletes_is_not_part_of_its_dry_run(site: GroupTemplates) -> None:
    assert site.write(template(value=config_map(data={"gone": None, "stays": "1"}))).allowed
    (tried,) = site.checks.dry_runs
    assert tried["data"] == {"stays": "1"}


def test_a_dry_run_that_fails_otherwise_is_a_warning(site: GroupTemplates) -> None:
    site.checks.refuse = lambda _: "Forbidden: no right"
    found = site.write(template())
    assert found.allowed
    assert "was not checked against its schema: Forbidden: no right" in found.warnings


def test_without_the_api_server_a_template_is_refused_for_now(site: GroupTemplates) -> None:
    site.checks.away = True
    found = site.write(template())
    assert not found.allowed
    assert "the API server does not answer; try again" in found.message


@table(
    "rule, said",
    [
        ("no expression", "TASKS | length >=", "validation[0].expression"),
        ("an unknown variable", "TASK | length >= 2", "TASK"),
        ("it fails", "TASKS[0].NOPE > 1", "NOPE"),
    ],
)
def test_a_rule_that_cannot_be_evaluated_is_refused(site: GroupTemplates, rule: str, said: str) -> None:
    found = site.write(template(validation=[{"expression": rule}]))
    assert not found.allowed
    assert said in found.message


def test_a_rule_may_be_false_for_the_sample(site: GroupTemplates) -> None:
    assert site.write(template(validation=[{"expression": "TASKS | length > 1000"}])).allowed
    assert len(site.checks.dry_runs) == 1


def test_only_a_job_tests_nvlink(site: GroupTemplates) -> None:
    found = site.write(template(nvlinkTest={"minBandwidthGBps": 100}))
    assert "spec.nvlinkTest needs a template of kind Job" in found.message


def test_a_change_that_makes_an_object_of_a_pool_too_large_is_refused(site: GroupTemplates) -> None:
    half = {"data": {"a": "x" * (MAX_TEMPLATE_BYTES // 2)}}
    site.put(template("a", config_map() | half), template("b", config_map()), pool("nvlink-pool", "a", "b"))
    larger = config_map() | {"data": {"b": "x" * (MAX_TEMPLATE_BYTES // 2)}}
    found = site.write(template("b", larger), old=template("b", config_map()))
    assert not found.allowed
    assert "Pool 'nvlink-pool' would break" in found.message
    assert f"the limit is {MAX_TEMPLATE_BYTES}" in found.message


def test_a_change_that_breaks_a_pool_is_refused_with_its_name(site: GroupTemplates) -> None:
    site.put(template("a", DOMAIN), template("b", config_map()), pool("nvlink-pool", "a", "b"), pool("other", "a"))
    newer = DOMAIN | {"apiVersion": "resource.nvidia.com/v1"}
    found = site.write(template("b", newer), old=template("b", config_map()))
    assert not found.allowed
    assert "Pool 'nvlink-pool' would break" in found.message
    assert "'other'" not in found.message
    assert site.write(template("c", newer)).allowed


def test_a_missing_template_of_a_pool_does_not_stop_changes_of_the_others(site: GroupTemplates) -> None:
    site.put(template("a"), pool("pool", "a", "missing"))
    assert site.write(template("a"), old=template("a")).allowed


def test_a_template_that_is_being_deleted_does_not_stop_changes_of_the_others(site: GroupTemplates) -> None:
    site.put(held(template("a", DOMAIN)), template("b"), pool("pool", "a", "b"))
    newer = template("b", DOMAIN | {"apiVersion": "resource.nvidia.com/v1"})
    assert not site.write(newer, old=template("b")).allowed
    site.api.delete(TEMPLATES, "a")
    assert site.write(newer, old=template("b")).allowed


def test_a_template_that_is_being_deleted_is_reviewed_like_every_other(site: GroupTemplates) -> None:
    broken = template(value={"kind": "x"})
    broken["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not site.write(broken).allowed


def test_a_template_in_use_is_not_deleted(site: GroupTemplates) -> None:
    site.put(template("a"), template("b"), pool("nvlink-pool", "b", "a"), pool("second", "a"))
    found = site.delete("a")
    assert not found.allowed
    assert "'a' is in use by Pools: nvlink-pool, second" in found.message
    assert site.delete("free").allowed


def test_a_pool_that_released_a_template_a_moment_ago_does_not_hold_it(site: GroupTemplates) -> None:
    site.put(template("a"), pool("pool", "a"))
    site.observe()
    site.api.merge(POOL_OBJECTS, "pool", {"spec": {"commonGroupTemplates": []}})
    assert site.delete("a").allowed


def test_of_many_pools_some_are_named(site: GroupTemplates) -> None:
    site.put(template("a"), *(pool(f"pool-{number}", "a") for number in range(9)))
    site.observe()
    assert "pool-0, pool-1, pool-2, pool-3, pool-4 and 4 more" in site.delete("a").message


def test_a_broken_template_can_be_deleted(site: GroupTemplates) -> None:
    broken = template("a") | {"spec": {"template": 7}}
    assert site.review("/grouptemplates/delete", None, broken, operation="DELETE").allowed


def test_pools_that_cannot_be_read_leave_a_template_in_place(site: GroupTemplates) -> None:
    site.api.fault = lambda verb, _: ApiError(0, "Unreachable", "away") if verb == "list" else None
    found = site.delete("a")
    assert not found.allowed
    assert "the Pools cannot be listed" in found.message


def test_a_review_of_templates_writes_nothing(site: GroupTemplates) -> None:
    site.put(template("a"), pool("pool", "a"))
    before = list(site.api.calls)
    site.write(template("a"), old=template("a"))
    site.delete("a")
    assert {verb for verb, _, _ in site.api.calls[len(before) :]} <= {"get", "list"}


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_other_operations_than_its_own_pass_the_webhook_of_deletions(site: GroupTemplates, operation: str) -> None:
    site.put(template("a"), pool("pool", "a"))
    assert site.review("/grouptemplates/delete", template("a"), operation=operation).allowed
    assert not site.delete("a").allowed


def test_a_pool_without_templates_is_admitted(site: GroupTemplates) -> None:
    found = site.write(pool("pool"))
    assert (found.allowed, found.warnings) == (True, "")
    assert site.checks.dry_runs == []


def test_the_objects_of_a_pool_are_tried_as_they_are_merged(site: GroupTemplates) -> None:
    base = config_map("{{WF_ID}}", data={"mode": "single", "gone": "1"})
    patch = config_map("{{ WF_ID }}", data={"extra": "value", "gone": None})
    site.put(template("base", base), template("domain", DOMAIN), template("patch", patch))
    found = site.write(pool("pool", "base", "domain", "patch"))
    assert (found.allowed, found.warnings, found.message) == (True, "", "")
    first, second = site.checks.dry_runs
    assert first["data"] == {"mode": "single", "extra": "value"}
    assert second["kind"] == "ComputeDomain"


def test_a_missing_template_is_named(site: GroupTemplates) -> None:
    site.put(template("a"))
    found = site.write(pool("pool", "a", "does-not-exist"))
    assert not found.allowed
    missing = "Pool 'pool' names GroupTemplates that do not exist, or are being deleted: 'does-not-exist'"
    assert missing in found.message


def test_a_template_that_is_being_deleted_is_missing_until_there_is_a_new_one(site: GroupTemplates) -> None:
    """A finalizer of another controller holds it: no pool may begin to depend on it."""
    site.put(held(template("leaving")))
    site.api.delete(TEMPLATES, "leaving")
    for observed in (False, True):
        if observed:
            site.observe()
        assert "or are being deleted: 'leaving'" in site.write(pool("pool", "leaving")).message
    site.api.merge(TEMPLATES, "leaving", {"metadata": {"finalizers": None}})
    site.put(template("leaving"))
    assert site.write(pool("pool", "leaving")).allowed


def test_two_versions_of_one_object_are_refused(site: GroupTemplates) -> None:
    newer = DOMAIN | {"apiVersion": "resource.nvidia.com/v1"}
    site.put(template("old", DOMAIN), template("new", newer))
    found = site.write(pool("pool", "old", "new"))
    assert not found.allowed
    assert "'old' and 'new' name one 'ComputeDomain' in two versions" in found.message


def test_two_templates_that_render_to_one_object_are_refused(site: GroupTemplates) -> None:
    site.put(template("a", config_map("{{ WF_POOL }}")), template("b", config_map("sample-pool")))
    assert "two templates of the pool render to this object" in site.write(pool("pool", "a", "b")).message


def test_two_compute_domains_are_refused(site: GroupTemplates) -> None:
    site.put(template("a", DOMAIN), template("b", DOMAIN | {"metadata": {"name": "second"}}))
    assert "two ComputeDomains" in site.write(pool("pool", "a", "b")).message


def test_a_kind_that_is_not_allowed_any_more_is_refused(renderer: RenderingProcess) -> None:
    site = GroupTemplates(renderer, TaskGroups(enabled=True, allowed_kinds=[]))
    site.put(template("a"))
    assert "'ConfigMap' is not allowed" in site.write(pool("pool", "a")).message


def test_an_incomplete_object_is_refused_in_a_pool(site: GroupTemplates) -> None:
    site.put(template("a"))
    site.checks.refuse = refusing("spec.channel: Required value", incomplete=True)
    found = site.write(pool("pool", "a"))
    assert not found.allowed
    assert "the API server refuses ConfigMap 'settings': spec.channel: Required value" in found.message


def test_what_cannot_be_tried_is_a_warning(site: GroupTemplates) -> None:
    site.put(template("a"), template("b", DOMAIN))
    del site.checks.kinds["v1", "ConfigMap"]
    site.checks.refuse = lambda _: "Forbidden: no right"
    found = site.write(pool("pool", "a", "b"))
    assert found.allowed
    assert "ConfigMap 'settings' was not checked against its schema: its kind is not installed" in found.warnings
    assert "was not checked against its schema: Forbidden: no right" in found.warnings


def test_no_dry_run_begins_late(site: GroupTemplates) -> None:
    names = [f"t-{number}" for number in range(5)]
    site.put(*(template(name, config_map(name)) for name in names))
    clock = iter([0.0, 1.0, DRY_RUN_SECONDS, DRY_RUN_SECONDS + 0.1])
    partners = Partners(site.observed, site.checks, site.renderer, site.settings)
    path = site.reviewers["/pools"]
    late = GroupTemplates(site.renderer)
    late.reviewers["/pools"] = type(path)(
        path.group,
        path.kind,
        path.type,
        partial(review_pool, partners=partners, clock=lambda: next(clock)),
        path.cluster,
        path.budget,
    )
    found = late.write(pool("pool", *names))
    assert found.allowed
    assert len(site.checks.dry_runs) == 2
    assert "ConfigMap 't-2' and the objects after it were not checked" in found.warnings


def test_a_pool_may_have_the_most_templates(site: GroupTemplates) -> None:
    names = [f"t-{number}" for number in range(MAX_TEMPLATES)]
    site.put(*(template(name, config_map(name)) for name in names))
    assert site.write(pool("pool", *names)).allowed
    assert len(site.checks.dry_runs) == MAX_TEMPLATES


def test_templates_are_read_that_the_watch_has_not_shown(site: GroupTemplates) -> None:
    site.observe()
    site.put(template("new"))
    assert site.write(pool("pool", "new")).allowed
    site.api.fault = lambda verb, _: ApiError(0, "Unreachable", "away") if verb == "get" else None
    found = site.write(pool("pool", "new"))
    assert not found.allowed
    assert "GroupTemplate new cannot be read" in found.message
    site.observe()
    assert site.write(pool("pool", "new")).allowed


def test_a_pool_that_is_being_deleted_is_reviewed_like_every_other(site: GroupTemplates) -> None:
    leaving: Json = pool("pool", "missing")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not site.write(leaving).allowed
