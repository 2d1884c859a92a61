"""The rendered base, components and overlays are the chart, for every kustomize that people have."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from gkm.api.task_group_rights import manifests
from gkm.api.task_group_settings import AllowedKind, TaskGroups
from kustomizations.directories import COMPONENTS, OVERLAYS
from kustomizations.rendering import Component, Overlay, merged
from support.chart.deploy_files import rendered
from support.chart.helm import render
from support.chart.kustomized import COMMANDS, build, of_chart, overlay
from support.peers import require

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "manifests.py"


@pytest.fixture(scope="module", autouse=True)
def _helm() -> None:
    require.peer("helm")


@pytest.fixture(scope="module", params=COMMANDS, ids=lambda command: command[0])
def command(request: pytest.FixtureRequest) -> Sequence[str]:
    found: Sequence[str] = request.param
    require.peer(found[0])
    return found


def contents(directory: Path) -> dict[Path, bytes]:
    return {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*.yaml")}


def test_the_command_writes_what_the_tests_read_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "deploy"
    (target / "base").mkdir(parents=True)
    (target / "base" / "stale.yaml").touch()
    subprocess.run([sys.executable, str(SCRIPT), str(target)], check=True, capture_output=True)
    assert contents(target) == contents(rendered())


def test_the_base_is_the_chart_with_its_defaults(command: Sequence[str]) -> None:
    assert build(rendered() / "base", command) == of_chart(render())


def test_the_base_with_all_components_is_the_chart_with_all_values(tmp_path: Path, command: Sequence[str]) -> None:
    built = build(overlay(tmp_path, [each.name for each in COMPONENTS]), command)
    wanted = of_chart(render(merged(each.values for each in COMPONENTS)))
    assert built.keys() == wanted.keys()
    for key, value in wanted.items():
        assert built[key] == value, key


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda each: each.name)
def test_the_base_with_one_component_is_the_chart_with_its_values(
    tmp_path: Path, component: Component, command: Sequence[str]
) -> None:
    names = [*component.needs, component.name]
    values = merged(each.values for each in COMPONENTS if each.name in names)
    assert build(overlay(tmp_path, names), command) == of_chart(render(values))


def test_a_patch_gives_the_rights_of_another_list_of_kinds(tmp_path: Path, command: Sequence[str]) -> None:
    directory = overlay(tmp_path, ["task-groups"])
    rights = manifests(TaskGroups(allowed_kinds=[AllowedKind("Secret")]))
    (directory / "rights.yaml").write_text(yaml.safe_dump_all(rights), encoding="utf-8")
    with (directory / "kustomization.yaml").open("a", encoding="utf-8") as file:
        file.write("patches: [{path: rights.yaml}]\n")
    built = build(directory, command)
    found = [built[each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]] for each in rights]
    assert found == rights


@pytest.mark.parametrize("each", OVERLAYS, ids=lambda each: each.name)
def test_an_overlay_is_the_chart_with_its_values_file(each: Overlay, command: Sequence[str]) -> None:
    built = build(rendered() / "overlays" / each.name, command)
    assert built == of_chart(render(files=[each.values_file]))
    assert built != of_chart(render())


@pytest.mark.parametrize("each", OVERLAYS, ids=lambda each: each.name)
def test_an_overlay_takes_all_components(tmp_path: Path, each: Overlay, command: Sequence[str]) -> None:
    directory = overlay(tmp_path, [one.name for one in COMPONENTS], f"overlays/{each.name}")
    values = merged(one.values for one in COMPONENTS)
    assert build(directory, command) == of_chart(render(values, [each.values_file]))


def test_the_cleanup_of_nodes_is_that_of_the_chart(command: Sequence[str]) -> None:
    built = build(rendered() / "remove-state", command)
    assert built == of_chart(each for each in render({"removeState": True}) if each.key[2] == "gkm-remove-state")
    assert len(built) == 1
