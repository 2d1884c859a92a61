"""`gkm exec` as root or as a plain user, on a machine with a GPU of a test's choice."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gkm.hoststate import trees
from support.cli.command import KEY, SECONDS, forked
from support.fakes import nvml_library
from support.peers import require
from support.registry.push import Target
from support.sigstore.key_signatures import sign_bundle

ROOT: tuple[str, ...] = ()
# The interpreter may lie in root's home: this user may read and pass everywhere, and write only where modes let it.
PLAIN_USER = (
    *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
)
USERS = (ROOT, PLAIN_USER)
CONTAINER = ("setpriv", "--bounding-set=-sys_admin")
"""Root that may not mount."""
_FORKED = (*USERS, CONTAINER)


class HasHost(Protocol):
    """A registry."""

    @property
    def host(self) -> str: ...


@dataclass(frozen=True)
class Machine:
    """Where `gkm exec` runs; `user` is put before its command line."""

    directory: Path
    image: str
    user: tuple[str, ...] = ROOT
    gpus: tuple[nvml_library.Gpu, ...] = (nvml_library.H100,)
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def store(self) -> Path:
        return self.directory / "store"

    def words(self, *options: object) -> list[str]:
        """Return the command line; the options hold `--` and the program."""
        return [*self.user, sys.executable, "-m", "gkm_cli.main", *self.arguments(*options)]

    def arguments(self, *options: object) -> list[str]:
        """Return the arguments of `gkm`."""
        own = [
            "exec",
            "--cache",
            self.image,
            "--plain-http",
            "--key",
            self.directory / "key.pub",
            "--store",
            self.store,
        ]
        return [*map(str, [*own, *options])]

    def variables(self) -> dict[str, str]:
        """Return the environment in which NVML describes the GPUs, and whose sources any user may read."""
        require.gcc()
        library = nvml_library.build()
        here = {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path), "PYTHONDONTWRITEBYTECODE": "1"}
        return {**here, **nvml_library.environment(self.directory, library=library, gpus=self.gpus), **self.environment}

    def run(self, *options: object) -> subprocess.CompletedProcess[str]:
        """Run `gkm exec` to the end of its program."""
        if self.user in _FORKED:
            return forked(self.arguments(*options), self.variables(), self.user)
        return subprocess.run(
            self.words(*options),
            env=self.variables(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def shell(self, script: str, *options: object) -> subprocess.CompletedProcess[str]:
        """Run a shell script with the cache; "$TRITON_CACHE_DIR" is its path."""
        return self.run(*options, "--", "sh", "-c", script)


@contextmanager
def machine(registry: HasHost, image: str, user: tuple[str, ...] = ROOT) -> Iterator[Machine]:
    """Sign an image of the test's registry; yield a machine that trusts the signer, in a directory for every user."""
    repository, _, digest = image.partition("/")[2].partition("@")
    sign_bundle(Target(registry.host, repository), digest, KEY)
    directory = Path(tempfile.mkdtemp(prefix="gkm-exec-"))
    try:
        directory.chmod(0o1777)
        (directory / "key.pub").write_bytes(KEY.public_pem)
        yield Machine(directory, image, user)
    finally:
        trees.remove(directory)
