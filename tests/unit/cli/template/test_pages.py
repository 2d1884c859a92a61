"""docs/features/group-templates.md and osmo.md state what the code does, and their examples are the samples."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from gkm.api import config, task_groups
from gkm.api.task_group_settings import TaskGroups
from gkm.templates import values
from gkm.templates.groups import SAMPLE_GROUP
from gkm.templates.rendering import frames, sandbox
from gkm.templates.rendering.process import REQUEST_SECONDS
from gkm_cli.template.importing import SPELLINGS
from support.cli.command import gkm
from support.cli.template_files import SAMPLES, TemplateWorkspace, group_template, render_sample, rendered, task_group

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "features" / "group-templates.md").read_text(encoding="utf-8")
OSMO = (ROOT / "docs" / "reference" / "osmo.md").read_text(encoding="utf-8")
BLOCKS = [list(yaml.load_all(text, yaml.CSafeLoader)) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
OPTIONS = ("templates", "pool", "group")
SWITCH, TEMPLATES, POOL, GROUP_AND_JOB, RULES, CLAIMED_POD, NCCL_TEST, OTHER_KINDS = BLOCKS


def section(heading: str) -> str:
    return re.split(r"^##+ ", PAGE.partition(f"# {heading}\n")[2], flags=re.MULTILINE)[0]


def test_the_first_group_is_the_sample() -> None:
    sample = yaml.load_all((SAMPLES / "compute-domain.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
    assert [*TEMPLATES, *POOL, *GROUP_AND_JOB] == list(sample)


def test_the_switch_is_a_configuration() -> None:
    assert config.parse(yaml.safe_dump(SWITCH[0])).task_groups == TaskGroups(enabled=True)


def test_the_list_of_kinds_allows_the_sample_beside_it(tmp_path: Path) -> None:
    config_file = tmp_path / "config.yaml"
    config_file.write_text(yaml.safe_dump(OTHER_KINDS[0]), encoding="utf-8")
    assert [each["kind"] for each in rendered(render_sample("ca-certificates", "--config", config_file, "-ojson"))] == [
        "Secret"
    ]
    rights = gkm("template", "rights", "--config", config_file)
    granted = next(yaml.load_all(rights.stdout, yaml.CSafeLoader))["rules"]
    assert [(rule["apiGroups"], rule["resources"]) for rule in granted] == [
        ([""], ["configmaps", "secrets"]),
        (["resource.nvidia.com"], ["computedomains"]),
    ]


def test_the_claim_of_the_page_is_that_of_the_first_group() -> None:
    done = gkm("template", "render", *(f"--{name}={SAMPLES / 'compute-domain.yaml'}" for name in OPTIONS))
    claim = CLAIMED_POD[0]["spec"]["resourceClaims"][0]
    assert f"{claim['name']} from the ResourceClaimTemplate {claim['resourceClaimTemplateName']}\n" in done.stdout


def test_the_commands_of_the_page_run_as_they_stand() -> None:
    lines = re.findall(r"^\$ (gkm template render .*)$", PAGE, re.MULTILINE)
    assert len(lines) == 3
    for line in lines:
        words = shlex.split(line.replace("$F", str(SAMPLES / "compute-domain.yaml")), comments=True)
        done = gkm(*words[1:])
        assert (done.returncode, "ComputeDomain" in done.stdout) == (0, True)


@pytest.mark.parametrize(("gpus", "code"), [(18, 0), (19, 3)])
def test_the_rules_of_the_page_are_rules(tmp_path: Path, gpus: int, code: int) -> None:
    template = group_template("rules", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}, **RULES[0])
    tasks = [{"name": f"task-{number}", "gpus": gpus} for number in range(4)]
    done = TemplateWorkspace(tmp_path).render(template, group=task_group(tasks=tasks))
    assert done.returncode == code
    assert ("one NVLink domain has 72 GPUs" in done.stderr) == bool(code)


def test_the_nccl_test_is_a_job_of_one_pod_for_each_task(tmp_path: Path) -> None:
    tasks = [{"name": "a"}, {"name": "b"}]
    configured = "taskGroups: {allowedKinds: [{kind: Job, group: batch}]}"
    workspace = TemplateWorkspace(tmp_path)
    (job,) = rendered(workspace.render(NCCL_TEST[0], group=task_group(tasks=tasks), config=configured))
    assert (job["kind"], job["spec"]["completions"], job["spec"]["parallelism"]) == ("Job", 2, 2)
    pod = job["spec"]["template"]
    assert "gkm.io/task-group" not in pod.get("metadata", {}).get("labels", {})
    claim = pod["spec"]["resourceClaims"][0]
    assert claim["resourceClaimTemplateName"] == TEMPLATES[0]["spec"]["template"]["spec"]["channel"][
        "resourceClaimTemplate"
    ]["name"].replace("{{ WF_GROUP_UUID }}", job["metadata"]["labels"]["osmo.group_uuid"])


def test_the_tables_of_the_language_are_those_of_the_sandbox() -> None:
    rows = dict(re.findall(r"^\| ([a-z ]+) \| (.*) \|$", section("Expressions"), re.MULTILINE))
    made = sandbox.Sandbox()
    assert re.findall(r"`(\w+)`", rows["filters"]) == sorted(made.filters)
    assert re.findall(r"`(\w+)`", rows["function"]) == sorted(made.globals)
    methods = re.findall(r"`(\w+)`", rows["methods of texts"])
    allowed = sandbox._ALLOWED_METHODS
    assert methods == [*sorted(allowed[str]), *sorted(allowed[list]), *sorted(allowed[dict])]


def test_the_values_with_a_type_are_as_the_page_states(tmp_path: Path) -> None:
    found = re.findall(r'^\| `"(.*)"` \| (.*) \|$', section("Expressions"), re.MULTILINE)
    data = {f"v{number}": text.replace("\\|", "|") for number, (text, _) in enumerate(found)}
    template = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": data}
    tasks = [{"name": f"task-{number}"} for number in range(4)]
    group = task_group(tasks=tasks, workflow={"id": "wf"})
    (made,) = rendered(TemplateWorkspace(tmp_path).render(group_template("t", template), group=group))
    assert list(made["data"].values()) == [4, 0.5, True, ["wf", "pool-a"]]


def test_every_variable_has_a_row() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", section("Variables"), re.MULTILINE)
    assert set(rows[: len(values.VARIABLES)]) == values.VARIABLES


def test_every_default_kind_is_named() -> None:
    text = section("Security")
    assert all(allowed.kind in text for allowed in TaskGroups().allowed_kinds)


def test_the_limits_are_those_of_the_page() -> None:
    rows = dict(re.findall(r"^\| (\S.*?) \| (\S.*?) \|$", section("Limits"), re.MULTILINE))
    assert rows == {
        "templates of a pool, objects of a group": f"{task_groups.MAX_TEMPLATES}",
        "a template, and the merged templates of an object": (
            f"{task_groups.MAX_TEMPLATE_BYTES >> 10} KiB as JSON, {values.MAX_LEVELS} levels"
        ),
        "a TaskGroup and all its objects": f"{task_groups.MAX_GROUP_BYTES >> 10} KiB as JSON, "
        "with `<`, `>` and `&` as six bytes each",
        "tasks of a group": f"{task_groups.MAX_TASKS:,}",
        "rules of a template": "16, each with 4,096 characters",
        "name of a TaskGroup": "63 characters",
        "ComputeDomains of a group": "1",
        "rendering a group": f"{frames.CPU_SECONDS:g} s of CPU time, {REQUEST_SECONDS:g} s in all, "
        f"{frames.HEADROOM_BYTES >> 20} MiB of memory, a result of {frames.MAX_RESULT_BYTES >> 10} KiB",
    }
    assert SAMPLE_GROUP.metadata.uid in PAGE


def test_the_spellings_of_the_page_are_those_that_are_read() -> None:
    assert all(f"`{spelling}`" in OSMO for spelling in SPELLINGS)
