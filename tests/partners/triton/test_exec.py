"""Real Triton under `gkm exec`, from an image in a real registry: it reads its kernels and compiles none."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.cli import execution
from support.cli.command import gkm
from support.cli.execution import USERS, Machine
from support.peers import require
from support.registry.olareg import Olareg
from support.triton import installation as triton
from support.triton.cache import PROGRAMS, STAGES

pytestmark = pytest.mark.mounts
OTHER = 256
"""Another constant, so another kernel: one that the cache does not hold."""


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Olareg]:
    with require.absences(), Olareg.start(tmp_path / "olareg") as olareg:
        yield olareg


@pytest.fixture(params=USERS, ids=["root", "another"])
def machine(request: pytest.FixtureRequest, registry: Olareg, moved: Path) -> Iterator[Machine]:
    image = f"{registry.host}/team/add"
    built = gkm("cache", "build", moved, "--image", f"{image}:1", "--push", "--plain-http", "-o", "json")
    assert built.returncode == 0, built.stderr
    pinned = f"{image}@{json.loads(built.stdout)['digest']}"
    with execution.machine(registry, pinned, request.param) as made:
        yield replace(made, environment={"TRITON_DEFAULT_FP_FUSION": "1"})


def program(block: int = 128) -> tuple[object, ...]:
    return ("--", "env", "-u", "PYTHONPATH", triton.python(), "-I", PROGRAMS / "compile_kernel.py", block)


@pytest.mark.parametrize("rw", [(), ("--rw",)], ids=["read-only", "rw"])
def test_a_kernel_of_the_image_is_a_hit(machine: Machine, rw: tuple[str, ...]) -> None:
    done = machine.run(*rw, *program())
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["hit"], found["stages"]) == (True, [])
    assert all(Path(path).is_relative_to(machine.store) for path in found["paths"])


def test_another_kernel_is_compiled_with_rw_and_gone_afterwards(machine: Machine) -> None:
    for _ in range(2):
        done = machine.run("--rw", *program(OTHER))
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["stages"] == STAGES


def test_another_kernel_without_rw_fails_as_in_a_pod(machine: Machine) -> None:
    done = machine.run(*program(OTHER))
    assert (done.returncode, json.loads(done.stdout)) == (1, {"stages": []})
    assert "OSError" in done.stderr or "PermissionError" in done.stderr
