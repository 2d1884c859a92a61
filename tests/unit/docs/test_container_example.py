"""The example for containers: gkm exec and podman are real; Docker's command is a stand-in that prints its words."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cli.command import CACHE
from support.cli.execution import PLAIN_USER, USERS
from support.docs.example_machine import ExampleMachine, example_machine, served_image
from support.peers import require

IMAGE = "localhost/server:1"
PROGRAM = """sh -c 'echo "$TRITON_CACHE_DIR"; ls "$TRITON_CACHE_DIR"; cat "$TRITON_CACHE_DIR"/*/__grp__*;
  echo new > "$TRITON_CACHE_DIR/new"'"""
ALIKE_HERE = {"--device nvidia.com/gpu=all": "--network=none"}
"""No GPU is here that podman could hand on, and the program needs no network."""
UNBOUNDED = '[containers]\ndefault_ulimits = []\n[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'


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
        "registry.example/team/llama:1": cache,
        "/etc/gkm/config.yaml": f"{machine.directory}/config.yaml",
        "registry.example/team/server:1": IMAGE,
    }
    return machine.copy("containers/run.sh", names | changes)


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


def test_docker_as_a_stand_in_gets_a_directory_that_other_processes_see_and_its_owner(
    machine: ExampleMachine, image: str
) -> None:
    machine.install("docker", 'echo "$@"; id -u; readlink /proc/self/ns/mnt; ls "$TRITON_CACHE_DIR" >&2; exit 7')
    done = machine.run(script(machine, image, {}), "docker", user=PLAIN_USER)
    assert done.returncode == 7, "the exit code is that of docker"
    assert set(done.stderr.split()) == {path.name for path in CACHE.iterdir()}
    given, *whose = done.stdout.splitlines()
    assert whose == ["65534", str(Path("/proc/self/ns/mnt").readlink())], (
        "a mount of gkm exec, the daemon would not see"
    )
    words = given.split()
    directory = words[words.index("--volume") + 1].partition(":")[0]
    expected = ["run", "--rm", "--gpus", "all", "--user", "65534:65534", "--volume", f"{directory}:{directory}"]
    assert words == [*expected, "--env", "TRITON_CACHE_DIR", IMAGE, "python", "serve.py"]


def test_docker_as_root_is_refused_with_the_reason(machine: ExampleMachine) -> None:
    done = machine.run(script(machine, "registry.example/a:1", {}), "docker")
    assert (done.returncode, done.stdout) == (2, "")
    assert "does not see the mounts" in done.stderr


def test_another_program_is_refused(machine: ExampleMachine) -> None:
    assert machine.run(script(machine, "registry.example/a:1", {}), "rkt").returncode == 2
