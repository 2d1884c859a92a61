"""The Dockerfiles name existing files. The images are built elsewhere, so these tests read the files."""

import re
import shlex
import tomllib
from typing import Any

import pytest
from support.operator.deployment import ROOT

PROCESSES = {"agent": "gkm-agent", "csi": "gkm-csi", "operator": "gkm-operator"}
INSTALL = ROOT / "requirements" / "install"


def instructions(process: str) -> list[tuple[str, str]]:
    """Return (instruction, rest) of every line of a Dockerfile, continued lines joined."""
    text = (ROOT / f"Dockerfile.{process}").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


@pytest.mark.parametrize("process", PROCESSES)
def test_copied_files_exist_and_are_not_ignored(process: str) -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sources = [
        source
        for name, rest in instructions(process)
        if name == "COPY" and not rest.startswith("--from=")
        for source in shlex.split(rest)[:-1]
    ]
    assert f"requirements/{process}.lock" in sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert f"!{source.partition('/')[0]}" in ignored, source


@pytest.mark.parametrize("process", PROCESSES)
def test_only_locked_and_hashed_files_are_installed(process: str) -> None:
    runs = [rest for name, rest in instructions(process) if name == "RUN"]
    assert [run for run in runs if run.startswith("/requirements/")] == [
        f"/requirements/install locked {process}",
        f"/requirements/install ours {process}",
    ]
    commands = [part for run in runs for part in run.split("&&")] + INSTALL.read_text(encoding="utf-8").splitlines()
    installs = [part for part in commands if " pip install" in part or " pip wheel" in part]
    assert len(installs) == 4
    # A lock is complete. With dependencies, an old pip takes the newest release of an extra instead of the locked one.
    assert all("--no-deps" in part for part in installs)
    assert [part for part in installs if " -r " in part] == [part for part in installs if "--require-hashes" in part]


@pytest.mark.parametrize(("process", "command"), PROCESSES.items())
def test_the_entry_is_a_command_of_ours(process: str, command: str) -> None:
    scripts: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    (entry,) = (rest for name, rest in instructions(process) if name == "ENTRYPOINT")
    assert entry == f'["/opt/gkm/bin/{command}"]'
    assert command in scripts


def test_every_base_can_be_replaced_and_the_stages_share_it() -> None:
    for process in PROCESSES:
        bases = [rest for name, rest in instructions(process) if name == "FROM"]
        assert bases == ["${BASE} AS wheel", "${BASE} AS build", "${BASE}"]
        (base,) = (rest for name, rest in instructions(process) if name == "ARG" and rest.startswith("BASE="))
        assert re.fullmatch(r"BASE=python:3\.11-slim-bookworm@sha256:[0-9a-f]{64}", base)


def test_the_lock_of_the_build_is_part_of_the_lock() -> None:
    whole = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    build = (ROOT / "requirements" / "build.lock").read_text(encoding="utf-8")
    entries = re.split(r"\n(?=\S)", build.strip())
    assert entries[0].startswith("hatchling==")
    assert all(entry in whole for entry in entries)


def test_tools_of_the_fabric_are_in_the_image_of_the_agent_only_if_they_are_named() -> None:
    found = instructions("agent")
    assert ("ARG", 'FABRIC_TOOLS=""') in found
    (install,) = (rest for name, rest in found if name == "RUN" and "apt-get" in rest)
    assert install.startswith('if [ -n "${FABRIC_TOOLS}" ]; then ')
    assert not any("apt-get" in rest for process in ("csi", "operator") for _, rest in instructions(process))
    page = (ROOT / "docs" / "reference" / "fabric.md").read_text(encoding="utf-8")
    assert '--build-arg FABRIC_TOOLS="lldpd infiniband-diags"' in page
