"""Templates of a pool: which of them are one object, and what they merge to."""

from copy import deepcopy
from typing import Any

import pytest
from gkm.api.task_groups import MAX_GROUP_BYTES, MAX_TEMPLATE_BYTES, MAX_TEMPLATES
from gkm.templates.pools import MAX_NAME, PoolTemplate, identity, merged
from gkm.templates.values import MAX_LEVELS, Json, TemplateInvalid
from hypothesis import given
from hypothesis import strategies as st
from support.templates.json_values import OBJECTS, containers, shared
from support.templates.objects import compute_domain, config_map, named

TEMPLATES = st.builds(
    lambda name, data: config_map(name, data=data), st.sampled_from(["x", "{{WF_ID}}", "{{ WF_ID }}"]), OBJECTS
)


@pytest.mark.parametrize(
    "same",
    [
        ("cd-{{WF_ID}}", "cd-{{ WF_ID }}", "cd-{{\tWF_ID\n}}", "cd-{{- WF_ID -}}"),
        ("{{ WF_ID|lower }}", "{{WF_ID | lower}}"),
        ("{{ WF_ID | replace('a b', \"c\") }}", "{{WF_ID|replace( 'a b',\"c\" )}}"),
        ("{% if TASKS %}a{% endif %}", "{%if TASKS%}a{%endif%}"),
        ("a-{{WF_ID}}-{{WF_POOL}}", "a-{{ WF_ID }}-{{ WF_POOL }}"),
    ],
)
def test_names_that_differ_in_the_whitespace_of_expressions_are_one_name(same: tuple[str, ...]) -> None:
    assert len({identity(config_map(name)) for name in same}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("cd-{{WF_ID}}", "cd-{{WF_UUID}}"),
        ("{{ WF_ID ~ 'a b' }}", "{{ WF_ID ~ 'ab' }}"),
        ("{{ WF_ID ~ 'a  b' }}", "{{ WF_ID ~ 'a b' }}"),
        ("{{ 'a' }}", '{{ "a" }}'),
        ("{{ not TASKS }}", "{{ notTASKS }}"),
        ("{{ 1 - 1 }}", "{{ 1 1 }}"),
        ("{{WF_ID}}", "WF_ID"),
        ("a {{WF_ID}}", "a{{WF_ID}}"),
    ],
)
def test_other_differences_make_other_names(one: str, other: str) -> None:
    assert identity(config_map(one)) != identity(config_map(other))


def test_the_version_is_no_part_of_the_identity_and_the_group_is() -> None:
    domain = compute_domain("x")
    assert identity(domain) == ("resource.nvidia.com", "ComputeDomain", "x")
    assert identity({**domain, "apiVersion": "resource.nvidia.com/v1"}) == identity(domain)
    assert identity({**domain, "apiVersion": "example.com/v1beta1"}) != identity(domain)
    assert identity(config_map("x")) == ("", "ConfigMap", "x")


@pytest.mark.parametrize("missing", ["apiVersion", "kind", "metadata"])
@pytest.mark.parametrize("value", [None, "", 1, [], {}])
def test_an_object_without_identity_is_refused_by_the_field(missing: str, value: object) -> None:
    with pytest.raises(TemplateInvalid, match="metadata.name" if missing == "metadata" else missing):
        identity({**config_map(), missing: value})


def test_a_name_is_bounded_because_expressions_are_searched_in_it() -> None:
    with pytest.raises(TemplateInvalid, match=str(MAX_NAME)):
        identity(config_map("{{" * MAX_NAME))


def test_a_merged_object_is_where_the_first_of_its_templates_was() -> None:
    templates = named(config_map("a", data={"x": 1}), config_map("b"), config_map("a", data={"y": 2}))
    assert merged(templates) == [config_map("a", data={"x": 1, "y": 2}), config_map("b")]


def test_a_single_template_stays_as_it_is() -> None:
    template = config_map(data={"null": None, "list": [{}]})
    assert merged(named(template)) == [template]


def test_two_versions_of_one_object_are_refused_with_both_templates() -> None:
    domain = compute_domain("x")
    pool = [PoolTemplate("old", domain), PoolTemplate("new", {**domain, "apiVersion": "resource.nvidia.com/v1"})]
    with pytest.raises(TemplateInvalid, match=r"'old' and 'new' .* 'resource.nvidia.com/v1beta1' and"):
        merged(pool)


def test_a_template_that_cannot_be_merged_is_named() -> None:
    with pytest.raises(TemplateInvalid, match=r"GroupTemplate 'template-1': kind is missing"):
        merged(named(config_map(), {**config_map("b"), "kind": ""}))


@pytest.mark.parametrize("levels", [MAX_LEVELS + 1, 500])
def test_a_template_that_is_nested_too_deeply_is_refused(levels: int) -> None:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    with pytest.raises(TemplateInvalid, match="levels"):
        merged(named(config_map(data=value)))


def test_more_objects_than_a_group_may_have_are_refused() -> None:
    pool = [config_map(f"cm-{number}") for number in range(MAX_TEMPLATES + 1)]
    assert len(merged(named(*pool[:-1]))) == MAX_TEMPLATES
    with pytest.raises(TemplateInvalid, match=str(MAX_TEMPLATES)):
        merged(named(*pool))


def test_more_bytes_than_a_group_may_have_are_refused() -> None:
    pool = [config_map(f"cm-{number}", data={"x": "x" * (MAX_GROUP_BYTES // 8)}) for number in range(8)]
    assert len(merged(named(*pool[:-1]))) == 7
    with pytest.raises(TemplateInvalid, match=str(MAX_GROUP_BYTES)):
        merged(named(*pool))


def test_templates_that_merge_to_more_bytes_than_an_object_may_have_are_refused() -> None:
    parts = [config_map("cm", data={key: "x" * (MAX_TEMPLATE_BYTES // 2)}) for key in ("a", "b")]
    assert all(len(merged(named(part))) == 1 for part in parts)
    with pytest.raises(TemplateInvalid, match=f"'ConfigMap' 'cm': .* the limit is {MAX_TEMPLATE_BYTES}"):
        merged(named(*parts))


@given(st.lists(TEMPLATES, max_size=4))
def test_pools_share_nothing_with_templates_or_with_one_another(templates: list[Json]) -> None:
    before = deepcopy(templates)
    first, second = merged(named(*templates)), merged(named(*reversed(templates)))
    assert not shared(first, second)
    assert not shared(first, templates)
    assert not shared(second, templates)
    expected = deepcopy(second)
    for each in containers(first):
        each.clear()
    assert templates == before
    assert second == expected


def test_text_that_json_cannot_express_is_refused() -> None:
    with pytest.raises(TemplateInvalid, match="UnicodeEncodeError"):
        merged(named(config_map(data={"x": "\ud800"})))
