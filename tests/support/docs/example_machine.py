"""A machine with an H100, our `gkm` and a signed image, on which the scripts of deploy/examples run."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import yaml
from support.cli.command import CACHE, KEY, gkm
from support.cli.execution import ROOT as AS_ROOT
from support.fakes import nvml_library
from support.host.waiting import scaled
from support.peers import require
from support.registry.push import Target
from support.registry.server import Registry
from support.sigstore.key_signatures import sign_bundle

EXAMPLES = Path(__file__).resolve().parents[3] / "deploy" / "examples"
SECONDS = scaled(120.0)
SYSTEM = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


@dataclass(frozen=True)
class ExampleMachine:
    """Programs of its own come before those of the system."""

    directory: Path

    @property
    def path(self) -> str:
        return f"{self.directory}/bin:{SYSTEM}"

    def install(self, program: str, script: str) -> None:
        path = self.directory / "bin" / program
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def copy(self, example: str, changes: Mapping[str, str]) -> Path:
        """Return a copy of a script with other names of files and images; each one occurs in the original."""
        script = (EXAMPLES / example).read_text(encoding="utf-8")
        for ours, theirs in changes.items():
            assert ours in script, f"{example} has no {ours}"
            script = script.replace(ours, theirs)
        copy = self.directory / Path(example).name
        copy.write_text(script)
        copy.chmod(0o755)
        return copy

    def run(
        self,
        script: Path,
        *arguments: str,
        user: tuple[str, ...] = AS_ROOT,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> subprocess.CompletedProcess[str]:
        """Run a script to its end."""
        own = {"PATH": self.path, "HOME": str(self.directory / "home"), **variables}
        return subprocess.run(
            [*user, script, *arguments],
            cwd=self.directory,
            env=own,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )


@contextmanager
def example_machine() -> Iterator[ExampleMachine]:
    """Make the directory; every user passes through it, and has a home in it."""
    directory = Path(tempfile.mkdtemp(prefix="gkm-example-"))
    try:
        directory.chmod(0o755)
        (directory / "home").mkdir()
        (directory / "home").chmod(0o1777)  # sticky: a store in it is refused otherwise
        yield ExampleMachine(directory)
    finally:
        subprocess.run(["chmod", "-R", "u+w", directory], check=True)
        shutil.rmtree(directory)


@contextmanager
def served_image(machine: ExampleMachine) -> Iterator[str]:
    """Serve a signed image, and install `gkm` with a configuration (config.yaml) that trusts it."""
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
        (machine.directory / "config.yaml").write_text(yaml.safe_dump(config))
        library = nvml_library.build()
        gpus = nvml_library.environment(machine.directory, library=library, gpus=(nvml_library.H100,))
        set_ = "\n".join(f"export {name}='{value}'" for name, value in gpus.items())
        path = ":".join(each for each in sys.path if each)
        words = f"PYTHONDONTWRITEBYTECODE=1 PYTHONPATH='{path}' exec {sys.executable} -m gkm_cli.main"
        machine.install("gkm", f'{set_}\n{words} "$@"')
        yield f"{name}:1"
