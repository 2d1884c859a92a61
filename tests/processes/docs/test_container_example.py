"""The example for containers: gkm exec is real; Docker's command is a stand-in that prints its words."""

from pathlib import Path

from support.cli.command import CACHE
from support.cli.execution import PLAIN_USER
from support.docs.container_example import IMAGE, image, machine, script
from support.docs.example_machine import ExampleMachine

__all__ = ["image", "machine"]


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
    done = machine.run(script(machine, "registry.example/a:1", {}), "rkt")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "usage: run.sh [podman|docker]\n")
