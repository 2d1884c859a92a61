"""The job for Slurm: gkm exec is real; `srun` is a stand-in that runs its words on this machine, once for each node."""

from collections.abc import Iterator

import pytest
from support.cli.command import CACHE
from support.cli.execution import PLAIN_USER, USERS
from support.docs.example_machine import ExampleMachine, example_machine, served_image
from support.peers import require

NODES = 2
PROGRAM = """sh -c 'echo "$SLURM_PROCID"; ls "$TRITON_CACHE_DIR"'"""


@pytest.fixture
def machine() -> Iterator[ExampleMachine]:
    require.root()  # to become the other user
    with example_machine() as made:
        yield made


@pytest.mark.parametrize("user", USERS, ids=["root", "another"])
def test_each_task_of_the_job_by_a_stand_in_for_srun_sees_the_cache(
    machine: ExampleMachine, user: tuple[str, ...]
) -> None:
    machine.install("srun", f'for SLURM_PROCID in $(seq {NODES}); do export SLURM_PROCID; "$@" || exit; done')
    stores = machine.directory / "home" / "stores"
    with served_image(machine) as image:
        names = {
            "registry.example/team/caches/llama:1": image,
            "/etc/gkm/config.yaml": f"{machine.directory}/config.yaml",
            "/var/lib/gkm-slurm": str(stores),
            "python serve.py": PROGRAM,
        }
        done = machine.run(machine.copy("slurm/job.sh", names), user=user)
    assert done.returncode == 0, done.stderr
    listed = sorted(path.name for path in CACHE.iterdir())
    tasks = [word for number in range(1, NODES + 1) for word in (str(number), *listed)]
    assert done.stdout.split() == tasks
    assert [path.name for path in stores.iterdir()] == ["65534" if user == PLAIN_USER else "0"]
