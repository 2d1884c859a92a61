"""The real Triton, in a virtual environment of its own beside the other partners (`python -m
support.triton.installation`).

It is no dependency of ours: 286 MB to fetch and 1 GB on disk. It compiles for a GPU that is not there, and needs no
torch for that. What it is installed from is pinned with hashes in tests/support/triton/requirements.lock.
"""

import fcntl
import hashlib
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.peers import build as peers
from support.peers.missing import Missing

LOCK = Path(__file__).resolve().parent / "requirements.lock"
REPORT_EVERY_SECONDS = 15.0
_DONE = ".done"


def python() -> Path:
    """Return the interpreter that can import triton, installing it when it is not there yet.

    Raises:
        Missing: there is no Triton for this machine.
        RuntimeError: it could not be installed.
    """
    directory = _directory()
    if not (directory / _DONE).exists():
        directory.parent.mkdir(parents=True, exist_ok=True)
        with _alone(directory.with_name(f".{directory.name}.lock")):
            if not (directory / _DONE).exists():
                _install(directory)
    return directory / "bin" / "python"


def _directory() -> Path:
    """Return the environment for this pin, this Python and this machine: a change of any is another environment."""
    about = f"{platform.machine()} {sys.implementation.cache_tag} {sys.base_prefix}".encode()
    key = hashlib.sha256(b"%d:" % len(about) + about + LOCK.read_bytes()).hexdigest()[:16]
    return peers.cache_directory() / f"triton-{key}"


def _install(directory: Path) -> None:
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        raise Missing("Triton is published for Linux on x86_64 and aarch64 only")
    started = time.monotonic()
    _say("installing Triton (286 MB to fetch, once)")
    # An environment without the mark was left by an install that was killed.
    _run(directory, [sys.executable, "-m", "venv", "--clear", str(directory)])
    pip = [str(directory / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--no-cache-dir"]
    exact = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--requirement", str(LOCK)]
    _run(directory, [*pip, *exact])
    (directory / _DONE).touch()
    _say(f"installed Triton in {time.monotonic() - started:.0f} s: {directory}")


def _run(directory: Path, arguments: list[str]) -> None:
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
                    _say(f"installing Triton, {time.monotonic() - started:.0f} s so far")
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if code:
        tail = "\n  ".join(log.read_text(errors="replace").splitlines()[-15:])
        raise RuntimeError(f"installing Triton failed ({' '.join(arguments)}):\n  {tail}")
    log.unlink()


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("Triton is being installed by another process; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _say(text: str) -> None:
    print(f"peers: {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Install it and return the exit code."""
    try:
        _say(f"Triton is ready: {python()}")
    except (Missing, RuntimeError) as problem:
        _say(str(problem))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
