"""The Prolog for Slurm: it fetches the cache that a job's comment names, as the job's user, and never fails."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.cli.command import CACHE
from support.docs.example_machine import ExampleMachine, example_machine, served_image
from support.peers import require

SETTINGS = "SETTINGS=/etc/default/gkm-slurm\n"
NOBODY = "65534"


@dataclass(frozen=True)
class Node(ExampleMachine):
    """A compute node: settings of the Prolog, and the log."""

    @property
    def store(self) -> Path:
        return self.directory / "store"

    def prolog(self, **variables: str) -> str:
        """Run the Prolog with Slurm's variables; return what it logged."""
        settings = self.directory / "settings"
        settings.write_text(f"PATH={self.path}\nCONFIG={self.directory}/config.yaml\nSTORE={self.store}\n")
        # A job may set variables of slurmd, so the path of the settings is none of them: only this copy has another.
        copy = self.copy("slurm/prolog.sh", {SETTINGS: f"SETTINGS={settings}\n"})
        log = self.directory / "log"
        log.unlink(missing_ok=True)
        done = self.run(copy, variables={"SLURM_JOB_ID": "42", "SECRET_OF_SLURMD": "x", **variables})
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        return log.read_text() if log.exists() else ""


@pytest.fixture
def node() -> Iterator[Node]:
    require.root()  # as slurmd
    with example_machine() as machine:
        made = Node(machine.directory)
        made.install("logger", f'shift 3; echo "$@" >> {made.directory}/log')
        yield made


@pytest.fixture
def image(node: Node) -> Iterator[str]:
    with served_image(node) as image:
        yield image


def test_the_cache_of_a_job_is_on_the_node_before_the_job(node: Node, image: str) -> None:
    assert "is on this node" in node.prolog(SLURM_JOB_COMMENT=f"gkm:{image}", SLURM_JOB_UID="0")
    (entry,) = (node.store / "0" / "store" / "sha256").iterdir()
    assert {each.name for each in (entry / "cache").iterdir()} == {each.name for each in CACHE.iterdir()}


def test_a_wrong_image_is_logged_with_its_reason_and_drains_no_node(node: Node, image: str) -> None:
    said = node.prolog(SLURM_JOB_COMMENT=f"gkm:{image}gone", SLURM_JOB_UID="0")
    assert "job 42" in said
    assert "is not on this node" in said
    assert "error:" in said


def test_what_the_user_chose_runs_as_the_user_without_the_environment_of_slurmd(node: Node) -> None:
    node.install("gkm", 'id -u >&2; env | cut -d= -f1 | sort | tr "\\n" " "; echo "$@"; exit 1')
    said = node.prolog(SLURM_JOB_COMMENT="gkm:registry.example/a:1; id", SLURM_JOB_UID=NOBODY)
    assert "HOME PATH PWD exec --prepare --cache registry.example/a:1; id --config" in said
    assert node.store.stat().st_uid == 0
    assert ((node.store / NOBODY).stat().st_uid, (node.store / NOBODY).stat().st_mode & 0o777) == (int(NOBODY), 0o700)
    node.install("gkm", "id -u; exit 1")
    assert NOBODY in node.prolog(SLURM_JOB_COMMENT="gkm:registry.example/a:1", SLURM_JOB_UID=NOBODY)


@pytest.mark.parametrize("variables", [{}, {"SLURM_JOB_COMMENT": "hello"}, {"SLURM_JOB_COMMENT": "x gkm:a"}])
def test_a_job_without_a_cache_is_left_alone(node: Node, variables: dict[str, str]) -> None:
    assert node.prolog(SLURM_JOB_UID="0", **variables) == ""
    assert not node.store.exists()


@pytest.mark.parametrize("user", ["", "root", "0 0", "4000000000", "-1"])
def test_a_user_that_is_none_is_logged(node: Node, user: str) -> None:
    assert "job 42" in node.prolog(SLURM_JOB_COMMENT="gkm:a", SLURM_JOB_UID=user)
    assert not node.store.exists()
