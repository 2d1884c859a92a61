"""The jobs of docs/how-to/ci.md: they are YAML, each command with gkm exists, and the script of one of them runs."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cli.command import CACHE, gkm
from support.docs.command_lines import SEPARATOR, faults
from support.registry.server import Registry

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "ci.md").read_text(encoding="utf-8")
BLOCKS = [yaml.load(block, yaml.CSafeLoader) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
(GITHUB,) = (block for block in BLOCKS if "jobs" in block)
(GITLAB,) = (block["cache"] for block in BLOCKS if "cache" in block)
STEPS: list[dict[str, Any]] = GITHUB["jobs"]["cache"]["steps"]
SCRIPTS = {
    "github": [line for step in STEPS for line in step.get("run", "").splitlines()],
    "gitlab": [*GITLAB["before_script"], *GITLAB["script"]],
}
IN_ORDER = ["build", "check", "sign", "attest", "verify"]


def commands(job: str) -> Iterator[str]:
    """Yield the command lines with gkm of a job, without what is before a pipe."""
    for line in SCRIPTS[job]:
        yield from (piece for piece in SEPARATOR.split(line) if piece.startswith("gkm "))


@pytest.mark.parametrize("job", SCRIPTS)
def test_each_command_of_a_job_exists(job: str) -> None:
    found = list(commands(job))
    assert [line.split()[2] for line in found if line.startswith("gkm cache ")] == IN_ORDER
    assert {line: faults(line) for line in found if faults(line)} == {}


def test_the_job_of_github_may_sign_as_itself_and_pins_its_actions() -> None:
    assert GITHUB["permissions"] == {"contents": "read", "id-token": "write", "packages": "write"}
    actions = [step["uses"] for step in STEPS if "uses" in step]
    assert actions
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action) for action in actions)


def test_no_password_is_an_argument() -> None:
    for job in SCRIPTS:
        logins = [line for line in commands(job) if line.startswith("gkm login")]
        assert logins
        assert all("--password-stdin" in line and "PASSWORD" not in line and "TOKEN" not in line for line in logins)


@pytest.fixture
def variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """Return the variables of a job in an empty directory, with a pair of keys."""
    monkeypatch.chdir(tmp_path)
    made = {"COSIGN_PASSWORD": "of-a-test", "COSIGN_KEY": "cosign.key", "COSIGN_PUB": "cosign.pub"}
    assert gkm("keygen", env={**os.environ, **made}).returncode == 0
    return {**made, "TRITON_CACHE_DIR": str(CACHE), "CI_PROJECT_URL": "https://git.example/team/llama"}


def test_the_script_of_the_gitlab_job_runs(variables: Mapping[str, str]) -> None:
    with Registry.start() as registry:
        expanded = {**variables, "IMAGE": f"{registry.host}/team/caches/llama:cache-1"}
        for line in (line for line in commands("gitlab") if line.startswith("gkm cache ")):
            words = [re.sub(r"\$(\w+)", lambda name: expanded[name[1]], word) for word in shlex.split(line)[1:]]
            done = gkm(*words, "--plain-http", env={**os.environ, **variables})
            assert done.returncode == 0, f"{line}\n{done.stderr}"


def test_a_check_for_another_gpu_stops_the_job(variables: Mapping[str, str]) -> None:
    with Registry.start() as registry:
        image = f"{registry.host}/team/caches/llama:cache-1"
        build = ("cache", "build", variables["TRITON_CACHE_DIR"], "--image", image, "--push", "--plain-http")
        assert gkm(*build).returncode == 0
        done = gkm("cache", "check", image, "--gpu", "v100", "--plain-http")
    assert done.returncode == 3
    assert "ArchitectureMismatch" in done.stdout
