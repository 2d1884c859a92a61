"""Any file causes objects, a refusal, or an error of one line: never a traceback, in bounded memory and time."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli.command import gkm_in_this_process
from support.cli.template_files import TemplateWorkspace, config_map, group_template, pool, task_group
from support.examples import examples
from support.host.memory import MemoryGroup
from support.host.waiting import scaled
from support.templates.hostile import BOMBS

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        ["GroupTemplate", "Pool", "TaskGroup", "gkm.io/v1alpha1", "v1", "ConfigMap", "{{ WF_ID }}", "\x1b["]
    )
)
KEYS = st.sampled_from(
    ["kind", "apiVersion", "metadata", "name", "spec", "template", "items", "group_templates", "pools", "a_b", "A-b"]
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=12
)
MAX_TEXT = 100_000
"""Of a bomb: longer templates are refused by their size, and many of them would be more than a file may hold."""
MEMORY = 512 << 20
OSMO = st.fixed_dictionaries(
    {},
    optional={
        "group_templates": VALUES | st.dictionaries(st.text(max_size=4), VALUES, max_size=3),
        "pools": VALUES
        | st.dictionaries(
            st.text(max_size=4),
            st.fixed_dictionaries({}, optional={"common_group_templates": VALUES, "override_group_templates": VALUES}),
            max_size=3,
        ),
        "x": VALUES,
    },
)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> TemplateWorkspace:
    return TemplateWorkspace(tmp_path_factory.mktemp("hostile"))


def answered(*arguments: object) -> None:
    done = gkm_in_this_process("template", *arguments)
    assert done.returncode in (0, 1, 2, 3)
    assert all(line.isprintable() for line in (done.stdout + done.stderr).split("\n"))
    if done.returncode in (1, 2):
        assert done.stdout == ""
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1


def answered_for(workspace: TemplateWorkspace, path: Path) -> None:
    group = workspace.write("group.yaml", task_group())
    good = workspace.write("good.yaml", group_template("cm", config_map()), pool("cm"))
    answered("render", "--templates", path, "--pool", good, "--group", group)
    answered("render", "--templates", good, "--pool", path, "--group", group, "-o", "yaml")
    answered("render", "--templates", good, "--pool", good, "--group", path, "-o", "manifests")
    answered("import", path)


@settings(max_examples=examples(60))
@given(value=VALUES)
def test_any_json_as_a_file(workspace: TemplateWorkspace, value: object) -> None:
    answered_for(workspace, workspace.write("any.json", value))


@settings(max_examples=examples(60))
@given(text=st.text(max_size=60) | st.text("-:[]{}&*!|>'\"% \n\tab1,?", max_size=60))
def test_any_text_as_a_file(workspace: TemplateWorkspace, text: str) -> None:
    answered_for(workspace, workspace.write("any.yaml", text))


@settings(max_examples=examples(60))
@given(value=VALUES, part=st.sampled_from(["template", "validation", "commonGroupTemplates", "tasks", "workflow"]))
def test_any_field_of_an_object(workspace: TemplateWorkspace, value: object, part: str) -> None:
    template = group_template("cm", config_map())
    of_pool, group = pool("cm"), task_group()
    for each in (template, of_pool, group):
        if part in each["spec"] or part in ("validation", "tasks", "workflow"):
            each["spec"][part] = value
    path = workspace.write("any.yaml", template, of_pool, group)
    answered("render", "--templates", path, "--pool", path, "--group", path, "-o", "json")


@settings(max_examples=examples(100))
@given(config=OSMO)
def test_any_configuration_of_osmo(workspace: TemplateWorkspace, config: object) -> None:
    answered("import", workspace.write("osmo.json", config))


def test_every_bomb_is_refused_by_name(workspace: TemplateWorkspace) -> None:
    texts = [text for text in BOMBS.values() if len(text) < MAX_TEXT]
    bombs = {f"bomb-{number}": config_map("cm", a=text) for number, text in enumerate(texts)}
    done = gkm_in_this_process("template", "import", workspace.write("bombs.json", {"group_templates": bombs}))
    assert done.returncode == 3
    for name in bombs:
        assert f"refused: group template '{name}': " in done.stderr


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{key}: &{key} [{', '.join([f'*{before}'] * 9)}]\n" for before, key in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (LAUGHS, "larger or deeper than any valid file"),
        ("a: &a '" + "x" * 100_000 + "'\nb: [" + "*a, " * 100_000 + "]", "larger or deeper than any valid file"),
        ('{"group_templates": ' + "[" * 100_000, "more than 64 levels"),
        ('{"group_templates": {"a": ' + '{"a": ' * 1_000 + "1" + "}" * 1_002, "more than 64 levels"),
        ("[" + "{}," * 1_000_000 + "{}]", "more than 262144 values"),
        ("x" * (5 << 20), "has more than 4194304 bytes"),
    ],
    ids=["laughs", "a long text repeated", "brackets", "levels", "many values", "too long"],
)
def test_a_file_that_would_take_all_memory_is_refused(workspace: TemplateWorkspace, text: str, why: str) -> None:
    path = str(workspace.write("bomb.yaml", text))
    for command in (["import", path], ["render", "--templates", path, "--pool", path]):
        with MemoryGroup.of(MEMORY) as group:
            words = group.command([sys.executable, "-m", "gkm_cli.main", "template", *command])
            done = subprocess.run(words, capture_output=True, text=True, timeout=scaled(60), check=False)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert why in done.stderr, done.stderr


def test_a_pool_of_repeated_names_ends(workspace: TemplateWorkspace) -> None:
    pools = {f"p{number}": {"common_group_templates": ["a"] * 1_000} for number in range(100)}
    config = {"group_templates": {"a": config_map("cm", a="x" * 100_000)}, "pools": pools}
    done = gkm_in_this_process("template", "import", workspace.write("pools.json", config))
    assert done.returncode == 3
    assert done.stderr.count("a Pool has at most 64") == 100
