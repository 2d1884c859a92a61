"""Partners that are wheels, each in a virtual environment of its own beside the other partners.

They are no dependencies of ours. What an environment is installed from is pinned with hashes in a file of requirements;
it appears by a mark at the end, so that an installation that was killed begins anew.
"""

import fcntl
import hashlib
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.peers import build as peers
from support.peers.missing import Missing

REPORT_EVERY_SECONDS = 15.0
_DONE = ".done"


def _nothing(_: Path) -> None:
    return


@dataclass(frozen=True)
class PinnedEnvironment:
    """An environment; `cost` says what an installation fetches, `finish` completes the directory before the mark."""

    name: str
    title: str
    requirements: Path
    cost: str
    finish: Callable[[Path], None] = _nothing
    sources: tuple[Path, ...] = ()
    """Further files on which the environment depends."""

    def python(self) -> Path:
        """Return the interpreter of the environment, installing it when it is not there yet.

        Raises:
            Missing: there is none for this machine.
            RuntimeError: it could not be installed.
        """
        directory = self._directory()
        if not (directory / _DONE).exists():
            directory.parent.mkdir(parents=True, exist_ok=True)
            with self._exclusive(directory.with_name(f".{directory.name}.lock")):
                if not (directory / _DONE).exists():
                    self._install(directory)
        return directory / "bin" / "python"

    def main(self) -> int:
        """Install it and return the exit code."""
        try:
            _print(f"{self.title} is ready: {self.python()}")
        except (Missing, RuntimeError) as problem:
            _print(str(problem))
            return 1
        return 0

    def _directory(self) -> Path:
        """Return the directory for these pins, this Python and this machine: a change of any is another one."""
        about = f"{platform.machine()} {sys.implementation.cache_tag} {sys.base_prefix}".encode()
        contents = b"".join(path.read_bytes() for path in (self.requirements, *self.sources))
        key = hashlib.sha256(b"%d:" % len(about) + about + contents).hexdigest()[:16]
        return peers.cache_directory() / f"{self.name}-{key}"

    def _install(self, directory: Path) -> None:
        if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
            raise Missing(f"{self.title} is published for Linux on x86_64 and aarch64 only")
        started = time.monotonic()
        _print(f"installing {self.title} ({self.cost}, once)")
        # An environment without the mark was left by an installation that was killed.
        self._run(directory, [sys.executable, "-m", "venv", "--clear", str(directory)])
        pip = [
            str(directory / "bin" / "python"),
            *("-m", "pip", "install", "--disable-pip-version-check", "--no-cache-dir"),
        ]
        exact = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--requirement", str(self.requirements)]
        self._run(directory, [*pip, *exact])
        self.finish(directory)
        (directory / _DONE).touch()
        _print(f"installed {self.title} in {time.monotonic() - started:.0f} s: {directory}")

    def _run(self, directory: Path, arguments: list[str]) -> None:
        log = directory.with_name(f"{directory.name}.log")
        started = time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            try:
                while True:
                    try:
                        code = process.wait(REPORT_EVERY_SECONDS)
                        break
                    except subprocess.TimeoutExpired:
                        _print(f"installing {self.title}, {time.monotonic() - started:.0f} s so far")
            except BaseException:
                process.terminate()
                process.wait()
                raise
        if code:
            tail = "\n  ".join(log.read_text(errors="replace").splitlines()[-15:])
            raise RuntimeError(f"installing {self.title} failed ({' '.join(arguments)}):\n  {tail}")
        log.unlink()

    @contextmanager
    def _exclusive(self, path: Path) -> Iterator[None]:
        with path.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _print(f"{self.title} is being installed by another process; waiting for it")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _print(text: str) -> None:
    print(f"peers: {text}", file=sys.stderr, flush=True)
