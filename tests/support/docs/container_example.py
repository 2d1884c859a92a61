"""A machine for the example for containers, with an image in a registry, and the script for both."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.docs.example_machine import ExampleMachine, example_machine, served_image
from support.peers import require

IMAGE = "localhost/server:1"


@pytest.fixture
def machine() -> Iterator[ExampleMachine]:
    require.root()  # to become the other user
    with example_machine() as made:
        yield made


@pytest.fixture
def image(machine: ExampleMachine) -> Iterator[str]:
    with served_image(machine) as image:
        yield image


def script(machine: ExampleMachine, cache: str, changes: dict[str, str]) -> Path:
    names = {
        "registry.example/team/caches/llama:1": cache,
        "/etc/gkm/config.yaml": f"{machine.directory}/config.yaml",
        "registry.example/team/server:1": IMAGE,
    }
    return machine.copy("containers/run.sh", names | changes)
