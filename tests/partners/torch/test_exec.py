"""Real torch under `gkm exec`, from a signed image in a real registry: every graph is a hit at another path."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.cli import execution
from support.cli.command import gkm
from support.cli.execution import Machine
from support.peers import require
from support.registry.olareg import Olareg
from support.torch import installation as torch
from support.torch.cache import HIT, PROGRAM, SETTINGS, counted, parse

pytestmark = pytest.mark.mounts


@pytest.fixture
def machine(tmp_path: Path, filled: Path) -> Iterator[Machine]:
    require.root()
    with require.absences(), Olareg.start(tmp_path / "olareg") as registry:
        image = f"{registry.host}/team/model"
        options = ("--gpu", "cuda:90:32", "--push", "--plain-http", "-o", "json")
        built = gkm("cache", "build", filled, "--image", f"{image}:1", *options)
        assert built.returncode == 0, built.stderr
        with execution.machine(registry, f"{image}@{json.loads(built.stdout)['digest']}") as made:
            yield replace(made, environment=SETTINGS)


def test_every_graph_of_a_verified_image_is_a_hit(machine: Machine) -> None:
    done = machine.run("--rw", "--", "env", "-u", "PYTHONPATH", torch.python(), "-I", PROGRAM)
    assert done.returncode == 0, done.stderr
    assert counted(parse(done.stdout)) == HIT


def test_the_format_of_the_image_names_the_variable(machine: Machine) -> None:
    done = machine.run("--", "sh", "-c", 'ls "$TORCHINDUCTOR_CACHE_DIR"; echo "${TRITON_CACHE_DIR-unset}"')
    assert done.returncode == 0, done.stderr
    assert {"fxgraph", "aotautograd", "unset"} <= set(done.stdout.split())
