"""The appearance of programs: version and name, encodings without some characters, bars on a terminal."""

import os
import pty
import re
import secrets
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from support.cli.command import CACHE, forked
from support.registry.server import Registry

VERSION = metadata.version("gkm")
MAIN = "from gkm_cli.__main__ import main; main()"


def started_as(name: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a script of this name, as kubectl runs its plugins."""
    name.write_text(f"#!{sys.executable}\n{MAIN}\n")
    name.chmod(0o755)
    return subprocess.run([name, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("module", "name"),
    [("gkm_cli", "gkm"), ("gkm_agent", "gkm-agent"), ("gkm_csi", "gkm-csi"), ("gkm_operator", "gkm-operator")],
)
def test_every_program_prints_its_version(module: str, name: str) -> None:
    command = [sys.executable, "-m", module, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{name} {VERSION}\n", "")


def test_the_plugin_of_kubectl_is_called_as_people_call_it(tmp_path: Path) -> None:
    plugin = tmp_path / "kubectl-gkm"
    assert started_as(plugin, "--version").stdout == f"kubectl gkm {VERSION}\n"
    helped = started_as(plugin, "cache", "build", "--help")
    assert "Usage: kubectl gkm cache build" in helped.stdout
    assert "Example: kubectl gkm cache build" in helped.stdout
    assert "Usage: gkm cache build" in started_as(tmp_path / "gkm", "cache", "build", "--help").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["cache", "inspect", "--help"],
        ["cache", "verify", "REF", "--key", "/nowhere", "--policy", "é"],
        ["cache", "inspect", "registry.example/x", "--config", "/nowhere/é-漢"],
        ["node", "detect"],
    ],
)
def test_an_encoding_without_a_character_gives_no_traceback(arguments: list[str]) -> None:
    done = forked(arguments, {**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode in (0, 1, 2)
    assert "Traceback" not in done.stderr
    assert (done.stdout + done.stderr).isascii()


def test_processes_of_a_cluster_print_in_any_encoding() -> None:
    for module, wrong in (("gkm_operator", ["é"]), ("gkm_agent", ["é"]), ("gkm_csi", ["é"])):
        done = subprocess.run(
            [sys.executable, "-m", module, *wrong],
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, "Traceback" in done.stderr, done.stderr.isascii()) == (2, False, True)


def on_terminal(*arguments: object) -> str:
    """Run the command with a terminal as standard error; return what it drew there."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "gkm_cli.main", *map(str, arguments)]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "160"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, stdin=subprocess.DEVNULL, env=env) as run:
        os.close(theirs)
        drawn = b""
        try:
            while part := os.read(ours, 1 << 16):
                drawn += part
        except OSError:  # what a terminal says at its end (EIO)
            pass
        finally:
            os.close(ours)
        assert run.wait(60) == 0, drawn.decode()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.decode())


@pytest.fixture
def large(tmp_path: Path) -> Path:
    cache = tmp_path / "cache"
    subprocess.run(["cp", "-r", CACHE, cache], check=True)
    (next(cache.iterdir()) / "more.source").write_bytes(secrets.token_bytes(6 << 20))
    return cache


def last(drawn: str, stage: str) -> str:
    return [line for line in re.split(r"[\r\n]+", drawn) if stage in line][-1]


@pytest.mark.parametrize("form", ["oci", "docker-archive"])
def test_bars_have_bytes_a_rate_and_an_end(large: Path, tmp_path: Path, form: str) -> None:
    drawn = on_terminal("cache", "build", large, "--image", "x.example/a:1", "--to", f"{form}:{tmp_path}/out")
    for stage in ("Packing", "Writing"):
        assert re.search(r"100% .*6\.\d/6\.\d MiB .*/s", last(drawn, stage)), last(drawn, stage)
    assert "Pushing" not in drawn


def test_an_extraction_shows_bytes(large: Path, registry_server: Registry, tmp_path: Path) -> None:
    ref = f"{registry_server.host}/team/large:1"
    policy = tmp_path / "policy.yaml"
    policy.write_text("mode: off\n")
    pushed = on_terminal("cache", "build", large, "--image", ref, "--push")
    assert re.search(r"100% .*6\.\d/6\.\d MiB", last(pushed, "Pushing"))
    drawn = on_terminal("cache", "extract", ref, "--to", tmp_path / "out", "--policy", policy)
    for stage in ("Downloading", "Extracting"):
        assert re.search(r"100% .*6\.\d/6\.\d MiB", last(drawn, stage)), last(drawn, stage)
