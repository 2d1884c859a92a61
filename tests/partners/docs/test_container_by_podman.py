"""The example for containers, with the real podman."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cli.command import CACHE
from support.cli.execution import USERS
from support.docs.container_example import IMAGE, image, machine, script
from support.docs.example_machine import ExampleMachine
from support.peers import require

__all__ = ["image", "machine"]

PROGRAM = """sh -c 'echo "$TRITON_CACHE_DIR"; ls "$TRITON_CACHE_DIR"; cat "$TRITON_CACHE_DIR"/*/__grp__*;
  echo new > "$TRITON_CACHE_DIR/new"'"""
ALIKE_HERE = {"--device nvidia.com/gpu=all": "--network=none"}
"""No GPU is here that podman could hand on, and the program needs no network."""
UNBOUNDED = '[containers]\ndefault_ulimits = []\n[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'


@pytest.fixture(params=USERS, ids=["root", "another"])
def podman(request: pytest.FixtureRequest, machine: ExampleMachine) -> Iterator[tuple[tuple[str, ...], dict[str, str]]]:
    """Yield a user with an image of busybox in a store of its own, and the variables that name the store."""
    require.command("podman", "podman")
    busybox = require.command("busybox", "busybox-static")
    user: tuple[str, ...] = request.param
    # The runtime directory has a socket, whose path has 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="gkm-podman-") as directory:
        place = Path(directory)
        place.chmod(0o777)
        (place / "image" / "bin").mkdir(parents=True)
        shutil.copy(busybox, place / "image" / "bin" / "busybox")
        for name in ("sh", "ls", "cat"):
            (place / "image" / "bin" / name).symlink_to("busybox")
        subprocess.run(["tar", "-C", place / "image", "-cf", place / "image.tar", "."], check=True)
        storage = f'[storage]\ndriver = "vfs"\ngraphroot = "{place}/store"\nrunroot = "{place}/run"\n'
        (place / "storage.conf").write_text(storage + f'rootless_storage_path = "{place}/store"\n')
        (place / "containers.conf").write_text(UNBOUNDED)
        variables = {
            "CONTAINERS_STORAGE_CONF": f"{place}/storage.conf",
            "CONTAINERS_CONF": f"{place}/containers.conf",
            "XDG_RUNTIME_DIR": f"{place}/runtime",
        }
        import_ = place / "import.sh"
        import_.write_text(f'#!/bin/sh\nmkdir -p -m 700 "$XDG_RUNTIME_DIR"\npodman import {place}/image.tar {IMAGE}\n')
        import_.chmod(0o755)
        done = machine.run(import_, user=user, variables=variables)
        assert done.returncode == 0, done.stderr
        yield user, variables


def test_a_container_of_podman_sees_the_cache_at_the_path_that_its_files_name_and_may_add_to_it(
    machine: ExampleMachine, image: str, podman: tuple[tuple[str, ...], dict[str, str]]
) -> None:
    user, variables = podman
    store = machine.directory / "home" / "caches"
    changes = {"python serve.py": PROGRAM.replace("'", "'\"'\"'").replace("\n", " "), "--rw": f"--rw --store {store}"}
    copy = script(machine, image, ALIKE_HERE | changes)
    # The second run finds nothing of the first one: what a program added ends with it.
    for _ in range(2):
        done = machine.run(copy, user=user, variables=variables)
        assert done.returncode == 0, done.stderr
        directory, *listed = done.stdout.split("\n", len(list(CACHE.iterdir())) + 1)
        assert directory.startswith(str(store))
        assert set(listed[:-1]) == {path.name for path in CACHE.iterdir()}
        assert listed[-1].count(f'"{directory}/') >= len(listed) - 1
