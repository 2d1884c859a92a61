from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cli.command import gkm
from support.cli.template_files import Json, TemplateWorkspace, rendered, task_group

DOMAIN = {
    "apiVersion": "resource.nvidia.com/v1beta1",
    "kind": "ComputeDomain",
    "metadata": {"name": "compute-domain-{{WF_GROUP_UUID}}"},
    "spec": {"channel": {"resourceClaimTemplate": {"name": "compute-domain-{{WF_GROUP_UUID}}"}}},
}


@pytest.fixture
def workspace(tmp_path: Path) -> TemplateWorkspace:
    return TemplateWorkspace(tmp_path)


def config_map(name: str = "cm", **data: object) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def imported(workspace: TemplateWorkspace, *configs: object, code: int = 0) -> tuple[list[Json], list[str]]:
    """Return the manifests and the notes that `gkm template import` prints."""
    files = [workspace.write(f"osmo-{number}.json", config) for number, config in enumerate(configs)]
    done = gkm("template", "import", *files)
    assert done.returncode == code, done.stderr
    return list(yaml.load_all(done.stdout, yaml.CSafeLoader)), done.stderr.splitlines()


def refused(workspace: TemplateWorkspace, config: object) -> str:
    done = gkm("template", "import", workspace.write("osmo.json", config))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    return done.stderr


def of_pool(*templates: Json, **fields: Any) -> Json:  # noqa: ANN401 -- any JSON
    named = {f"t{number}": template for number, template in enumerate(templates)}
    return {"group_templates": named, "pools": {"p": {"common_group_templates": list(named), **fields}}}


@pytest.mark.parametrize("spelling", ["common_group_templates", "common_group_template", "override_group_templates"])
def test_each_spelling_names_the_templates_of_a_pool(workspace: TemplateWorkspace, spelling: str) -> None:
    config = {"group_templates": {"compute-domain": DOMAIN}, "pools": {"p": {spelling: ["compute-domain"]}}}
    manifests, notes = imported(workspace, config)
    assert [(each["kind"], each["metadata"]["name"]) for each in manifests] == [
        ("GroupTemplate", "compute-domain"),
        ("Pool", "p"),
    ]
    assert manifests[0]["spec"] == {"template": DOMAIN}
    assert manifests[1]["spec"] == {"commonGroupTemplates": ["compute-domain"]}
    assert notes == []


def test_one_name_is_a_list_of_one_and_equal_spellings_are_one(workspace: TemplateWorkspace) -> None:
    pool = {"common_group_template": "d", "override_group_templates": ["d"]}
    manifests, _ = imported(workspace, {"group_templates": {"d": DOMAIN}, "pools": {"p": pool}})
    assert manifests[1]["spec"]["commonGroupTemplates"] == ["d"]


def test_spellings_that_differ_are_refused(workspace: TemplateWorkspace) -> None:
    pool = {"common_group_templates": ["d"], "override_group_templates": []}
    error = refused(workspace, {"group_templates": {"d": DOMAIN}, "pools": {"p": pool}})
    assert "pool 'p': common_group_templates and override_group_templates differ" in error


def test_a_pool_without_templates_is_one_without_templates(workspace: TemplateWorkspace) -> None:
    manifests, notes = imported(workspace, {"pools": {"p": {"description": "No NVLink"}}})
    assert [each["spec"] for each in manifests] == [{"description": "No NVLink"}]
    assert notes == []


def test_every_dropped_field_is_named(workspace: TemplateWorkspace) -> None:
    config = of_pool(DOMAIN, name="p", status="ONLINE", platforms={"gb200": {}}, parsed_group_templates=[DOMAIN])
    config["group_templates"]["t0"] = {**DOMAIN, "metadata": {"name": "d", "namespace": "osmo"}}
    _, notes = imported(workspace, config | {"pod_templates": {}, "backends": {}})
    path = workspace.directory / "osmo-0.json"
    assert notes == [
        f"dropped: {path}: backends, pod_templates",
        "dropped: group template 't0': metadata.namespace",
        "dropped: pool 'p': parsed_group_templates, platforms, status",
    ]


def test_a_description_that_a_pool_cannot_have_is_dropped_by_name(workspace: TemplateWorkspace) -> None:
    manifests, notes = imported(workspace, {"pools": {"p": {"description": "x" * 1025}, "q": {"description": 3}}})
    assert [each["spec"] for each in manifests] == [{}, {}]
    assert notes == ["dropped: pool 'p': description", "dropped: pool 'q': description"]


def test_names_become_legal_and_the_mapping_is_shown(workspace: TemplateWorkspace) -> None:
    config = {
        "group_templates": {"Compute_Domain": DOMAIN},
        "pools": {"NV_Pool_": {"common_group_templates": ["Compute_Domain"]}},
    }
    manifests, notes = imported(workspace, config)
    assert [each["metadata"]["name"] for each in manifests] == ["compute-domain", "nv-pool"]
    assert manifests[1]["spec"]["commonGroupTemplates"] == ["compute-domain"]
    assert notes == [
        "renamed: group template 'Compute_Domain': is 'compute-domain' now",
        "renamed: pool 'NV_Pool_': is 'nv-pool' now",
    ]


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"group_templates": {"a_b": DOMAIN, "a-b": DOMAIN}}, "group templates 'a_b' and 'a-b' both become 'a-b'"),
        ({"pools": {"P": {}, "p": {}}}, "pools 'P' and 'p' both become 'p'"),
        ({"pools": {"__": {}}}, "pool '__': no letter or digit of it can be in a name"),
        ({"pools": {"p": {"common_group_templates": [1]}}}, "pool 'p': common_group_templates is no list of names"),
        ({"pools": {"p": {"common_group_templates": {}}}}, "is no list of names"),
        ({"pools": []}, "`pools` is no mapping of names"),
        ({"pools": ["p"]}, "`pools` is no mapping of names"),
        ({"pools": {"p": []}}, "`pools`: 'p' is no object"),
        ({"group_templates": {"t": "ConfigMap"}}, "`group_templates`: 't' is no object"),
        ({"kind": "ConfigMap"}, "it has no `group_templates` and no `pools`"),
        ([], "it has no `group_templates` and no `pools`"),
        ("{", "not YAML and not JSON"),
        ("a: &a [1]\nb: *a\n<<: {c: 1}", "merge keys"),
    ],
)
def test_what_cannot_be_converted_is_wrong_usage(workspace: TemplateWorkspace, config: object, why: str) -> None:
    assert why in refused(workspace, config)


@pytest.mark.parametrize(
    ("value", "note"),
    [
        ("ARRAY:[a,b]", "data.x: ARRAY:[…] stays text; write a list"),
        ("ARRAY:[{{ WF_ID }},b]", "data.x: ARRAY:[…] stays text; write a list"),
        ("{{ TASKS | length | int }}", "data.x: the value gets the type int; in OSMO it is text"),
        ("{{ TASKS|json }}", "data.x: the value gets the type json; in OSMO it is text"),
        ("a line\n", "data.x: the newline at the end stays; OSMO removes it"),
    ],
)
def test_a_value_that_osmo_renders_otherwise_is_reported(workspace: TemplateWorkspace, value: str, note: str) -> None:
    manifests, notes = imported(workspace, {"group_templates": {"t": config_map(x=value, y="a {{ WF_ID }}")}})
    assert manifests[0]["spec"]["template"]["data"]["x"] == value
    assert len(notes) == 1
    assert notes[0].startswith(f"differs: group template 't': {note}")


def test_merges_that_osmo_does_otherwise_are_reported(workspace: TemplateWorkspace) -> None:
    first = config_map(a=[1], b={"c": "1"}, d="1", e=[1])
    second = config_map(a=[2], b={"c": None}, d="2", f=[2])
    _, notes = imported(workspace, of_pool(first, second, config_map("other", a=None)))
    assert notes == [
        "differs: pool 'p': t1: data.a: the list replaces the one before it; OSMO merges their items by name",
        "differs: pool 'p': t1: data.b.c: null deletes the field; OSMO stores null",
    ]


@pytest.mark.parametrize(
    ("config", "note"),
    [
        (of_pool(config_map(a="{{ USER_GPU }}")), "group template 't0': data.a: there is no variable 'USER_GPU'"),
        (of_pool({**DOMAIN, "kind": "Queue"}), "group template 't0': the kind 'Queue.resource.nvidia.com' is not"),
        (of_pool({**DOMAIN, "apiVersion": ""}), "group template 't0': apiVersion is missing"),
        (of_pool(DOMAIN, {**DOMAIN, "apiVersion": "resource.nvidia.com/v1"}), "pool 'p': GroupTemplates 't0' and 't1'"),
        (
            {"pools": {"p": {"common_group_templates": ["t"]}}},
            "pool 'p': these group templates are not in the files: 't'",
        ),
        (
            {"group_templates": {"t": DOMAIN}, "pools": {"p": {"common_group_templates": ["t"] * 65}}},
            "pool 'p': it has 65 group templates; a Pool has at most 64",
        ),
    ],
)
def test_what_gkm_would_refuse_is_printed_and_named(workspace: TemplateWorkspace, config: Json, note: str) -> None:
    manifests, notes = imported(workspace, config, code=3)
    assert len(manifests) == len(config.get("group_templates", {})) + len(config["pools"])
    assert any(each.startswith(f"refused: {note}") for each in notes), notes


def test_the_configuration_decides_which_kinds_are_refused(workspace: TemplateWorkspace) -> None:
    osmo = workspace.write("osmo.json", of_pool({**config_map(), "kind": "Secret"}))
    allowed = workspace.write("config.yaml", "taskGroups: {allowedKinds: [{kind: Secret}]}")
    done = gkm("template", "import", osmo)
    assert (done.returncode, "the kind 'Secret' is not allowed" in done.stderr) == (3, True), done
    assert gkm("template", "import", osmo, "--config", allowed).returncode == 0


def test_helm_values_and_what_osmo_config_show_prints_are_read(workspace: TemplateWorkspace) -> None:
    pools = {"pools": {"p": {"common_group_templates": ["d"]}}}
    values = {"services": {"configs": {"enabled": True, "groupTemplates": {"d": DOMAIN}, **pools}}, "global": {}}
    of_values, notes = imported(workspace, values)
    of_two_files, nothing = imported(workspace, {"d": DOMAIN}, pools)
    assert of_values == of_two_files
    path = workspace.directory / "osmo-0.json"
    assert notes == [f"dropped: {path}: global", f"dropped: {path}: enabled"]
    assert nothing == []


def test_a_name_in_two_files_is_refused(workspace: TemplateWorkspace) -> None:
    files = [workspace.write(f"{number}.json", {"pools": {"p": {}}}) for number in range(2)]
    done = gkm("template", "import", *files)
    assert (done.returncode, "1.json: pool 'p' occurs twice" in done.stderr) == (2, True)


def test_what_is_imported_can_be_rendered(workspace: TemplateWorkspace) -> None:
    osmo = workspace.write(
        "osmo.json", {"group_templates": {"D": DOMAIN}, "pools": {"P": {"common_group_template": ["D"]}}}
    )
    path = workspace.write("imported.yaml", gkm("template", "import", osmo).stdout)
    group = workspace.write("group.yaml", task_group(pool="p"))
    done = gkm("template", "render", "--templates", path, "--pool", path, "--group", group, "-o", "json")
    assert [each["kind"] for each in rendered(done)] == ["ComputeDomain"]
