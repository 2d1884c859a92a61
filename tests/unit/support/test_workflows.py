"""The workflows of GitHub Actions: each step calls make targets that exist, or one pinned action."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"(?m)^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text()))
CALL = re.compile(r"make( [a-z][a-z0-9-]*)+")
PINNED = re.compile(r"actions/(cache|checkout|setup-go|upload-artifact|download-artifact)@[0-9a-f]{40}")
RIGHTS = {"publish": {"contents": "write", "id-token": "write"}}
"""Of the jobs that have other rights than to read the repository."""
EXPRESSION = re.compile(r"\$\{\{ (vars\.[A-Z]+|secrets\.[A-Z_]+|github\.(ref_name|ref|token)|hashFiles\([^)]*\)) \}\}")
RELEASING = {
    "version": "version",
    "release": "build",
    "verify-release": "verify",
    "publish": "publish",
    "github-release": "github",
}
HOSTILE = 'v1$(touch${IFS}PWNED)$(shell touch PWNED)"; touch PWNED; "`touch PWNED`'


def steps(workflow: Path) -> list[dict[str, Any]]:
    found = yaml.load(workflow.read_text(), yaml.CSafeLoader)
    return [step for job in found["jobs"].values() for step in job["steps"]]


def wrong(step: dict[str, Any]) -> str:
    """Return what a step does besides calling make, "" if nothing."""
    if "uses" in step:
        return "" if PINNED.fullmatch(step["uses"]) else str(step["uses"])
    command = str(step["run"])
    return "" if CALL.fullmatch(command) and set(command.split()[1:]) <= TARGETS else command


def test_there_is_one_for_changes_and_one_for_releases() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "release.yml"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_each_step_calls_make_or_checks_out(workflow: Path) -> None:
    assert [text for step in steps(workflow) if (text := wrong(step))] == []
    assert any("run" in step for step in steps(workflow))


def test_ci_runs_each_tier_in_a_job_and_keeps_the_builds_of_its_partners() -> None:
    jobs = yaml.load((ROOT / ".github" / "workflows" / "ci.yml").read_text(), yaml.CSafeLoader)["jobs"]
    runs = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}
    assert runs == {"test": ["make test"], "partners": ["make test-partners"], "all": ["make test-all"]}
    (kept,) = [step["with"] for step in jobs["partners"]["steps"] if "actions/cache@" in step.get("uses", "")]
    assert kept["path"] == "~/.cache/gkm/peers"
    assert "modules/*/go.*" in kept["key"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_rights_are_only_to_read_but_of_the_job_that_signs(workflow: Path) -> None:
    found = yaml.load(workflow.read_text(), yaml.CSafeLoader)
    assert found["permissions"] == {"contents": "read"}
    rights = {name: job["permissions"] for name, job in found["jobs"].items() if "permissions" in job}
    assert rights == {name: RIGHTS[name] for name in found["jobs"] if name in RIGHTS}


def test_the_job_that_signs_builds_nothing_and_is_of_an_environment() -> None:
    found = yaml.load((ROOT / ".github" / "workflows" / "release.yml").read_text(), yaml.CSafeLoader)
    build, publish = found["jobs"]["build"], found["jobs"]["publish"]
    assert [step["run"] for step in build["steps"] if "run" in step] == ["make release"]
    assert "secrets." not in str(build)
    assert (publish["environment"], publish["needs"]) == ("release", "build")
    runs = [step["run"] for step in publish["steps"] if "run" in step]
    assert runs == ["make verify-release", "make publish", "make github-release"]
    assert found["concurrency"] == {"group": "release", "cancel-in-progress": False}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_expressions_are_variables_secrets_and_the_name_of_the_ref_and_never_in_a_command(workflow: Path) -> None:
    assert "${{" not in EXPRESSION.sub("", workflow.read_text())
    assert [step["run"] for step in steps(workflow) if "${{" in step.get("run", "")] == []


@pytest.mark.parametrize("target", RELEASING)
@pytest.mark.parametrize("variable", ["TAG", "VERSION", "PLATFORMS", "REGISTRY"])
def test_the_text_of_a_variable_runs_nowhere(target: str, variable: str, tmp_path: Path) -> None:
    """Run the recipe itself, with programs that do nothing in the place of ours."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    programs = tmp_path / ".venv" / "bin"
    for program in (programs / "python", programs / "gkm", tmp_path / "scripts" / "debian-packages"):
        program.parent.mkdir(parents=True, exist_ok=True)
        # It reads what a pipe has for it: else the program before it may fail.
        program.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/called\ncat >/dev/null\n')
        program.chmod(0o755)
    command = ["make", "--old-file=.venv/.done", target, "AS_ROOT=", f"PYTHON={sys.executable}"]
    (programs.parent / ".done").touch()
    for needed in ("requirements.lock", "pyproject.toml", "scripts/setup"):
        (tmp_path / needed).touch()
    names = {"TAG": "v1.2.3", "REGISTRY": "registry.test/team", "REGISTRY_TOKEN": "t", "REGISTRY_USER": "u"}
    environment = {"PATH": os.environ["PATH"], **names, variable: HOSTILE}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, list(tmp_path.glob("PWNED"))) == (0, []), done.stderr
    assert (
        f"release.py {target.split('-', maxsplit=1)[0].replace('release', 'build')}"
        in (tmp_path / "called").read_text()
    )


@pytest.mark.parametrize(
    "step",
    [
        {"run": "make no-such-target"},
        {"run": "make check && curl x"},
        {"run": "pip install x"},
        {"run": "make check\necho done\n"},
        {"uses": "actions/checkout@v5"},
        {"uses": "someone/else@08c6903cd8c0fde910a37f88322edcfb5dd907a8"},
    ],
    ids=lambda step: next(iter(step.values())).splitlines()[0],
)
def test_other_steps_are_found(step: dict[str, Any]) -> None:
    assert wrong(step)
