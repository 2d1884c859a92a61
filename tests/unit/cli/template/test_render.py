from pathlib import Path

import pytest
from support.cli.command import gkm
from support.cli.template_files import (
    UID,
    Json,
    TemplateWorkspace,
    config_map,
    group_template,
    pool,
    rendered,
    task_group,
)


@pytest.fixture
def workspace(tmp_path: Path) -> TemplateWorkspace:
    return TemplateWorkspace(tmp_path)


def test_json_is_the_list_of_objects_as_the_group_gets_them(workspace: TemplateWorkspace) -> None:
    template = group_template("cm", config_map(tasks="{{ TASKS | length }}"))
    (made,) = rendered(workspace.render(template, group=task_group(tasks=[{"name": "a"}, {"name": "b"}])))
    assert made["kind"] == "ConfigMap"
    assert made["data"] == {"tasks": "2"}
    assert made["metadata"]["name"] == f"settings-{UID}"
    assert made["metadata"]["namespace"] == "team-a"
    assert made["metadata"]["labels"]["gkm.io/task-group"] == "train"
    assert [owner["name"] for owner in made["metadata"]["ownerReferences"]] == ["train"]


def test_manifests_are_documents_that_kubectl_applies(workspace: TemplateWorkspace) -> None:
    templates = [group_template(name, config_map(name)) for name in ("one", "two")]
    done = workspace.render(*templates, arguments=("-o", "manifests"))
    assert done.stdout.count("---\n") == 2
    assert done.stdout.count("kind: ConfigMap") == 2


def test_people_get_a_table_and_the_claim_of_task_pods(workspace: TemplateWorkspace) -> None:
    domain = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomain",
        "metadata": {"name": "domain"},
        "spec": {"channel": {"resourceClaimTemplate": {"name": "osmo-{{ WF_GROUP_NAME }}"}}},
    }
    done = workspace.render(group_template("domain", domain), arguments=())
    assert "ComputeDomain" in done.stdout
    assert "compute-domain-channel from the ResourceClaimTemplate osmo-train" in done.stdout


def test_a_pool_without_templates_gives_no_object(workspace: TemplateWorkspace) -> None:
    template = group_template("cm", config_map())
    assert rendered(workspace.render(template, of_pool=pool())) == []
    assert "gets no objects" in workspace.render(template, of_pool=pool(), arguments=()).stdout


def test_templates_merge_in_the_order_of_the_pool(workspace: TemplateWorkspace) -> None:
    templates = [group_template("b", config_map(a="1", b="1")), group_template("a", config_map(b="2"))]
    assert rendered(workspace.render(*templates))[0]["data"] == {"a": "1", "b": "2"}
    assert rendered(workspace.render(*templates, of_pool=pool("a", "b")))[0]["data"] == {"a": "1", "b": "1"}


def test_without_a_group_a_sample_is_rendered_and_rules_may_be_false(workspace: TemplateWorkspace) -> None:
    rule = {"expression": "TASKS | length > 1000"}
    templates = workspace.write("t.yaml", group_template("cm", config_map(a="{{ WF_ID }}"), validation=[rule]))
    pools = workspace.write("p.yaml", pool("cm"))
    done = gkm("template", "render", "--templates", templates, "--pool", pools, "-o", "json")
    assert rendered(done)[0]["data"] == {"a": "sample-workflow"}


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (config_map(a="{{ 1"), "data.a: unexpected"),
        (config_map(a="{{ USER_NAME }}"), "there is no variable 'USER_NAME'"),
        (config_map(a="{{ WF_ID.__class__ }}"), "unsafe"),
        ({"kind": "ConfigMap", "metadata": {"name": "x"}}, "apiVersion is missing"),
        ({"apiVersion": "v1", "metadata": {"name": "x"}}, "kind is missing"),
        ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}, "metadata.name is missing"),
        ({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}, "the kind 'Secret' is not allowed"),
        (
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}},
            "the kind 'Namespace' is not allowed",
        ),
        (config_map(a="x" * (129 << 10)), "the limit is 131072"),
    ],
)
def test_a_template_that_admission_refuses_is_refused(workspace: TemplateWorkspace, template: Json, why: str) -> None:
    done = workspace.render(group_template("bad", template))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("refused: GroupTemplate 'bad': ")
    assert why in done.stderr


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"validation": [{"expression": "TASKS | length >= 4", "message": "use four tasks"}]}, "use four tasks"),
        ({"validation": [{"expression": "WF_POOL == 'other'"}]}, "the rule \"WF_POOL == 'other'\" of GroupTemplate"),
        ({"validation": [{"expression": "1 +"}]}, "validation[0].expression"),
        ({"nvlinkTest": {"minBandwidthGBps": 100}}, "spec.nvlinkTest needs a template of kind Job"),
    ],
)
def test_a_rule_that_is_not_met_refuses_the_group(workspace: TemplateWorkspace, spec: Json, why: str) -> None:
    done = workspace.render(group_template("cm", config_map(), **spec))
    assert (done.returncode, done.stdout) == (3, "")
    assert why in done.stderr


@pytest.mark.parametrize(
    ("templates", "of_pool", "group", "why"),
    [
        ([config_map()], pool("cm", "gone"), None, "Pool 'pool-a' names GroupTemplates that --templates does not hold"),
        ([config_map()], pool("cm", name="b"), None, "the TaskGroup names the Pool 'pool-a', which --pool does not"),
        ([config_map(a="{{ WF_ID }}")], None, None, "'WF_ID' is undefined"),
        ([config_map("{{ WF_ID }}")], None, task_group(workflow={"id": "A_b"}), "no object can have this name"),
        ([config_map("{{ WF_ID }}"), config_map("a")], None, task_group(workflow={"id": "a"}), "names must differ"),
        (
            [config_map(), {**config_map(), "apiVersion": "v2"}],
            None,
            None,
            "in two versions, 'v1' and 'v2'; use the same",
        ),
    ],
)
def test_a_group_that_would_fail_is_refused(
    workspace: TemplateWorkspace, templates: list[Json], of_pool: Json | None, group: Json | None, why: str
) -> None:
    made = [group_template(f"cm{number or ''}", template) for number, template in enumerate(templates)]
    done = workspace.render(*made, of_pool=of_pool, group=group)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("refused: ")
    assert why in done.stderr


def test_every_bad_template_of_the_pool_is_named(workspace: TemplateWorkspace) -> None:
    bad = [group_template(f"bad-{number}", config_map(f"cm-{number}", a="{{ NO }}")) for number in range(3)]
    done = workspace.render(*bad, group_template("good", config_map()))
    assert [line.split("'")[1] for line in done.stderr.splitlines()] == ["bad-0", "bad-1", "bad-2"]


def test_a_namespace_is_ignored_with_a_warning_or_refused(workspace: TemplateWorkspace) -> None:
    template = config_map()
    template["metadata"]["namespace"] = "kube-system"
    warned = workspace.render(group_template("cm", template))
    assert rendered(warned)[0]["metadata"]["namespace"] == "team-a"
    assert warned.stderr.startswith("warning: GroupTemplate 'cm': metadata.namespace is ignored")
    refused = workspace.render(group_template("cm", template), config="taskGroups: {namespaces: enforce}")
    assert (refused.returncode, refused.stdout) == (3, "")
    assert "metadata.namespace must not be set" in refused.stderr


def test_the_configuration_allows_kinds(workspace: TemplateWorkspace) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}
    config = "taskGroups: {allowedKinds: [{kind: Secret}]}"
    assert rendered(workspace.render(group_template("s", secret), config=config))[0]["kind"] == "Secret"
    assert "'ConfigMap' is not allowed" in workspace.render(group_template("c", config_map()), config=config).stderr


def test_a_date_in_yaml_is_text_as_with_kubectl(workspace: TemplateWorkspace) -> None:
    text = (
        "{apiVersion: gkm.io/v1alpha1, kind: GroupTemplate, metadata: {name: cm}, spec: {template: "
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: cm}, data: {day: 2026-01-02, 1: one}}}}"
    )
    templates, pools = workspace.write("t.yaml", text), workspace.write("p.yaml", pool("cm"))
    done = gkm("template", "render", "--templates", templates, "--pool", pools, "-o", "json")
    assert rendered(done)[0]["data"] == {"day": "2026-01-02", "1": "one"}


@pytest.mark.parametrize(
    ("templates", "group", "why"),
    [
        ([{"x": 1}], task_group(), "is an object without a kind, not a GroupTemplate"),
        ([{**group_template("a", {}), "apiVersion": "v1"}], task_group(), "has apiVersion v1"),
        ([{**group_template("a", {}), "spec": {}}], task_group(), "missing required field `template`"),
        ([group_template("a", {}, validaton=[])], task_group(), "no field spec.validaton; validation may be meant"),
        ([group_template("A", {})], task_group(), "metadata.name 'A' is not a valid name"),
        ([group_template("a", {}), group_template("a", {})], task_group(), "two GroupTemplates have the name a"),
        ([group_template("a", {})], task_group(tasks=[{"name": "t"}, {"name": "t"}]), "two tasks have the name t"),
        ([group_template("a", {})], task_group(tasks=[{"name": "t", "gpus": -1}]), "Expected `int` >= 0"),
        ([group_template("a", {})], task_group(workflow={"labels": {"a b": "c"}}), "'a b': 'c' is not a valid label"),
        ([group_template("a", {})], "", "it holds no TaskGroup"),
    ],
)
def test_a_file_that_the_api_server_would_refuse_is_wrong_usage(
    workspace: TemplateWorkspace, templates: list[Json], group: Json | str, why: str
) -> None:
    written = workspace.write("t.yaml", *templates), workspace.write("p.yaml", pool()), workspace.write("g.yaml", group)
    options = zip(("--templates", "--pool", "--group"), written, strict=True)
    done = gkm("template", "render", *(word for option in options for word in option))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert why in done.stderr


def test_two_groups_or_pools_without_a_choice_are_wrong_usage(workspace: TemplateWorkspace) -> None:
    templates = workspace.write("t.yaml", group_template("a", config_map()))
    pools = workspace.write("p.yaml", pool("a"), pool("a", name="b"))
    groups = workspace.write("g.yaml", task_group(), task_group())
    two_groups = gkm("template", "render", "--templates", templates, "--pool", pools, "--group", groups)
    assert (two_groups.returncode, "holds 2 TaskGroups" in two_groups.stderr) == (2, True)
    two_pools = gkm("template", "render", "--templates", templates, "--pool", pools)
    assert (two_pools.returncode, "holds 2 Pools; choose one with --group" in two_pools.stderr) == (2, True)


def test_standard_input_is_one_file() -> None:
    done = gkm("template", "render", "--templates", "-", "--pool", "-")
    assert (done.returncode, "standard input (-)" in done.stderr) == (2, True)


def test_terminal_commands_in_a_template_are_escaped(workspace: TemplateWorkspace) -> None:
    done = workspace.render(group_template("a", config_map(a="{{ 'x' | \x1b[2J }}")))
    assert (done.returncode, r"unexpected char '\x1b'" in done.stderr) == (3, True), done
    assert "\x1b" not in done.stderr
    named = workspace.render(group_template("a", {**config_map(), "kind": "\x1b[2J"}))
    assert "\\x1b[2J" in named.stderr
