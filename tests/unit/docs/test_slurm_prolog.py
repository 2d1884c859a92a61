"""The Prolog for Slurm: it fetches the cache that a job's comment names, as the job's user, and never fails."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from support.cli.command import CACHE, KEY, gkm
from support.fakes import nvml_library
from support.peers import require
from support.registry.push import Target
from support.registry.server import Registry
from support.sigstore.key_signatures import sign_bundle

PROLOG = Path(__file__).parents[3] / "deploy" / "examples" / "slurm" / "prolog.sh"
SETTINGS = "SETTINGS=/etc/default/gkm-slurm\n"
NOBODY = "65534"


@dataclass(frozen=True)
class Node:
    """A compute node: settings of the Prolog, programs in front of the system's, and the log."""

    directory: Path

    @property
    def store(self) -> Path:
        return self.directory / "store"

    def install(self, program: str, script: str) -> None:
        path = self.directory / "bin" / program
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def prolog(self, **variables: str) -> str:
        """Run the Prolog with Slurm's variables; return what it logged."""
        settings = self.directory / "settings"
        settings.write_text(
            f"PATH={self.directory}/bin:/usr/bin:/bin\nCONFIG={self.directory}/config.yaml\nSTORE={self.store}\n"
        )
        # A job may set variables of slurmd, so the path of the settings is none of them: only this copy has another.
        script = PROLOG.read_text(encoding="utf-8")
        assert script.count(SETTINGS) == 1
        copy = self.directory / "prolog.sh"
        copy.write_text(script.replace(SETTINGS, f"SETTINGS={settings}\n"))
        copy.chmod(0o755)
        job = {"SLURM_JOB_ID": "42", "SECRET_OF_SLURMD": "x", **variables}
        log = self.directory / "log"
        log.unlink(missing_ok=True)
        done = subprocess.run([copy], env=job, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        return log.read_text() if log.exists() else ""


@pytest.fixture
def node() -> Iterator[Node]:
    require.root()  # as slurmd
    # Not tmp_path: the job's user passes through it.
    directory = Path(tempfile.mkdtemp(prefix="gkm-slurm-"))
    directory.chmod(0o755)
    made = Node(directory)
    made.install("logger", f'shift 3; echo "$@" >> {directory}/log')
    yield made
    subprocess.run(["chmod", "-R", "u+w", directory], check=True)
    shutil.rmtree(directory)


@pytest.fixture
def image(node: Node) -> Iterator[str]:
    """Serve a signed image to a node with an H100 whose `gkm` is ours."""
    require.gcc()
    with Registry.start() as registry:
        name = f"{registry.host}/team/llama"
        built = gkm("cache", "build", CACHE, "--image", f"{name}:1", "--push", "--plain-http", "-o", "json")
        assert built.returncode == 0, built.stderr
        sign_bundle(Target(registry.host, "team/llama"), json.loads(built.stdout)["digest"], KEY)
        config = {
            "verification": {"policies": [{"keys": [KEY.public_pem.decode()]}]},
            "registries": {"hosts": {registry.host: {"plainHTTP": True}}},
            "store": {"minFreePercent": 0},
        }
        (node.directory / "config.yaml").write_text(yaml.safe_dump(config))
        library = nvml_library.build(node.directory)
        machine = nvml_library.environment(node.directory, library=library, gpus=(nvml_library.H100,))
        set_ = "\n".join(f"export {name}='{value}'" for name, value in machine.items())
        path = ":".join(each for each in sys.path if each)
        node.install("gkm", f"{set_}\nPYTHONPATH='{path}' exec {sys.executable} -m gkm_cli.main \"$@\"")
        yield f"{name}:1"


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
    assert "HOME PATH PWD exec --cache registry.example/a:1; id --config" in said
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
