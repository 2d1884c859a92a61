"""Reviews of Pools: their templates exist, merge, and make objects that the API server takes."""

from gkm.api.task_group_settings import TaskGroups
from gkm.api.task_groups import MAX_TEMPLATES
from gkm.kube.errors import ApiError
from gkm.templates.rendering.process import RenderingProcess
from gkm_operator.admission.groups.pools import DRY_RUN_SECONDS, PoolReview
from gkm_operator.admission.groups.view import Partners
from support.operator.group_templates import (
    DOMAIN,
    TEMPLATES,
    GroupTemplates,
    Json,
    config_map,
    held,
    pool,
    refusing,
    template,
)


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
        lambda _: PoolReview(partners, lambda: next(clock)),
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
