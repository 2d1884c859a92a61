"""The installed programs: from a wheel, without and with the packages of their extras."""

import importlib.util
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from support.host.waiting import scaled

ROOT = Path(__file__).parents[3]
PROGRAMS = {
    "gkm": "cli",
    "kubectl-gkm": "cli",
    "gkm-agent": "agent",
    "gkm-csi": "csi",
    "gkm-operator": "operator",
}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the programs of an environment with only GKM's wheel, made without a network."""
    place = tmp_path_factory.mktemp("bare")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(place)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=scaled(120))
    (wheel,) = place.glob("*.whl")
    venv.create(place / "env")
    pip = [sys.executable, "-m", "pip", "--python", str(place / "env")]
    install = ["install", "--no-index", "--no-deps", "--no-compile", "--quiet", str(wheel)]
    subprocess.run([*pip, *install], check=True, capture_output=True, timeout=scaled(240))
    return place / "env" / "bin"


def run(program: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=scaled(60),
        check=False,
    )


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_without_its_extra_names_the_install_command_in_one_line(bare: Path, program: str) -> None:
    for arguments in ([], ["--help"], ["--check-config"]):
        done = run(bare / program, *arguments)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
        assert re.search(r"the Python module \w+ is not installed", done.stderr)
        assert f"pip install '.[{PROGRAMS[program]}]'" in done.stderr


def test_a_module_that_only_some_commands_need_is_named_too(bare: Path, tmp_path: Path) -> None:
    """gkm-operator imports the client of Kubernetes only when it serves, so a part of the extra does not suffice."""
    modules = tmp_path / "modules"
    modules.mkdir()
    for name in ("msgspec", "yaml", "urllib3"):
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.submodule_search_locations is not None
        (modules / name).symlink_to(found.submodule_search_locations[0])
    done = run(bare / "gkm-operator", "controllers", PYTHONPATH=str(modules))
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "pip install '.[operator]'" in done.stderr.splitlines()[-1]
