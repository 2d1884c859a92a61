"""What is wrong with a template before anything is rendered."""

from typing import Any

import pytest
from gkm.api.task_group_settings import AllowedKind, TaskGroups
from gkm.api.task_groups import MAX_TEMPLATE_BYTES
from gkm.templates.checks import TemplateFindings, check
from gkm.templates.values import MAX_LEVELS, Json
from support.templates.objects import SETTINGS, compute_domain, config_map

ENFORCED = TaskGroups(enabled=True, namespaces="enforce")


def errors(template: Json, settings: TaskGroups = SETTINGS) -> str:
    return "\n".join(check(template, settings).errors)


@pytest.mark.parametrize(
    "template",
    [
        config_map("cm-{{ WF_ID }}", data={"x": "{{ TASKS }}"}),
        config_map(
            metadata={"labels": {"a": "b"}, "annotations": {"c": "d"}, "namespace": "", "creationTimestamp": None}
        ),
        compute_domain(),
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}},
    ],
)
def test_a_good_template_has_no_findings(template: Json) -> None:
    assert check(template, ENFORCED) == TemplateFindings()


@pytest.mark.parametrize("field", ["apiVersion", "kind", "metadata"])
def test_a_template_without_identity_is_refused(field: str) -> None:
    assert "is missing" in errors({key: value for key, value in config_map().items() if key != field})


@pytest.mark.parametrize(("field", "value"), [("kind", "{{ WF_ID }}"), ("apiVersion", "{% if 1 %}v1{% endif %}")])
def test_what_decides_the_rights_is_no_expression(field: str, value: str) -> None:
    assert f"{field} cannot contain expressions" in errors({**config_map(), field: value})


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("v1", "Secret"),
        ("v1", "Namespace"),
        ("rbac.authorization.k8s.io/v1", "Role"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        ("apps/v1", "ConfigMap"),
        ("example.com/v1", "ConfigMap"),
        ("v1", "configmap"),
        ("v1", "ConfigMapList"),
        ("v1", "ConfigMap "),
        ("/v1/x", "ConfigMap"),
    ],
)
def test_a_kind_that_is_not_in_the_list_is_refused(version: str, kind: str) -> None:
    found = errors({**config_map(), "apiVersion": version, "kind": kind})
    assert "not allowed" in found
    assert "ComputeDomain.resource.nvidia.com" in found


def test_a_secret_is_allowed_where_it_is_named() -> None:
    secret = {**config_map(), "kind": "Secret"}
    assert errors(secret, TaskGroups(allowed_kinds=[AllowedKind("Secret")])) == ""
    assert "has: none" in errors(secret, TaskGroups(allowed_kinds=[]))


def test_a_namespace_is_a_warning_or_an_error() -> None:
    template = config_map(metadata={"namespace": "kube-system"})
    assert (len(check(template, SETTINGS).errors), len(check(template, SETTINGS).warnings)) == (0, 1)
    assert (len(check(template, ENFORCED).errors), len(check(template, ENFORCED).warnings)) == (1, 0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("finalizers", ["example.com/never"]),
        ("ownerReferences", []),
        ("generateName", "x-"),
        ("uid", "x"),
        ("deletionTimestamp", "2026-01-01T00:00:00Z"),
    ],
)
def test_metadata_that_decides_the_life_of_an_object_is_refused(field: str, value: object) -> None:
    assert f"metadata.'{field}'" in errors(config_map(metadata={field: value}))


def test_all_errors_are_reported_at_once() -> None:
    template = {**config_map(metadata={"finalizers": ["x"], "namespace": "x"}), "kind": "Pod"}
    assert len(check(template, ENFORCED).errors) == 3


def test_size_and_levels_are_limited() -> None:
    assert errors(config_map(data={"x": "x" * (MAX_TEMPLATE_BYTES - 200)})) == ""
    assert str(MAX_TEMPLATE_BYTES) in errors(config_map(data={"x": "x" * MAX_TEMPLATE_BYTES}))
    value: Any = "x"
    for _ in range(MAX_LEVELS + 1):
        value = {"x": value}
    assert "levels" in errors(config_map(data=value))


def test_foreign_text_is_escaped_and_cut() -> None:
    found = errors({**config_map(), "kind": "\x1b[31m" + "x" * 5000})
    assert found.isprintable()
    assert len(found) < 600
