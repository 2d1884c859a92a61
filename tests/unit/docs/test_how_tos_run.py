"""The commands of how-tos that need a registry and no cluster, run in the order of the page."""

import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support.cli.command import CACHE, gkm
from support.docs.command_lines import in_blocks
from support.fakes import nvml_library
from support.peers import require
from support.registry.server import Registry

HOW_TOS = Path(__file__).parents[3] / "docs" / "how-to"
PAGES = ("air-gapped", "triton", "without-a-cluster")
WITH_A_REGISTRY = (
    "cache build",
    "cache copy",
    "cache push",
    "cache sign",
    "cache verify",
    "cache inspect",
    "cache check",
    "exec",
)
# A machine with what the pages name: a filled cache, and a program.
CACHES = ("~/.triton/cache", "/tmp/cache", "/var/lib/gkm/captured/csi-91ecb9/content")
OF_ANOTHER_SITE = ("--ca-file ca.pem", "--config /etc/gkm/config.yaml")


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry.start() as running:
        yield running


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """Return the environment of a machine with an H100, whose present directory is empty."""
    require.gcc()
    monkeypatch.chdir(tmp_path)
    library = nvml_library.build()
    variables = nvml_library.environment(tmp_path, library=library, gpus=(nvml_library.H100,))
    return {**os.environ, **variables, "COSIGN_PASSWORD": "of-a-test", "XDG_CACHE_HOME": str(tmp_path / "cache-home")}


def here(line: str, registry: Registry) -> list[str]:
    """Return a command line of a page for this machine and a registry that speaks plain http."""
    for host in ("registry.example", "registry.corp.example"):
        line = line.replace(f" {host}/", f" {registry.host}/")
    for cache in CACHES:
        line = line.replace(f" {cache} ", f" {CACHE} ")
    for option in OF_ANOTHER_SITE:
        line = line.replace(f" {option}", " --key cosign.pub" if " exec " in line and "--key" not in line else "")
    words = shlex.split(line.replace("-- python serve.py", "-- true"))[1:]
    if not " ".join(words).startswith(WITH_A_REGISTRY):
        return words
    return (
        [*words[:1], "--store", "store", "--plain-http", *words[1:]] if words[0] == "exec" else [*words, "--plain-http"]
    )


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_succeeds(page: str, registry: Registry, machine: Mapping[str, str]) -> None:
    lines = [line for line in in_blocks((HOW_TOS / f"{page}.md").read_text(encoding="utf-8")) if " -n " not in line]
    if not any(line.startswith("gkm keygen") for line in lines):
        lines.insert(0, "gkm keygen")
    assert len(lines) >= 4
    for line in lines:
        done = gkm(*here(line, registry), env=dict(machine))
        assert done.returncode == 0, f"{line}\n{done.stderr}"
