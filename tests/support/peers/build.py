"""Builds the real partners (`python -m support.peers.build [name…]`) from pinned Go modules, once, elsewhere.

A partner is a directory modules/<name> whose go.mod names commands as `tool`s; without one there is nothing to build.
The cache key covers go.mod, go.sum and the flags, so a changed pin is a new directory and an interrupted build is never
mistaken for a finished one.
"""

import argparse
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.peers import tiers
from support.peers.go_modules import PEERS, Command, Peer
from support.peers.go_toolchain import find as find_go
from support.peers.go_toolchain import go
from support.peers.missing import Missing

KUBEBUILDER = "kubernetes"
"""The peer whose commands KUBEBUILDER_ASSETS may hold, as envtest lays them out."""
WITHOUT_DWARF = "-gcflags=all=-dwarf=false"
"""A sixth of the compiler's time is for what debuggers read, and the linker removes it: no part of the cache key."""
REPORT_EVERY_SECONDS = 30.0
END_SECONDS = 10.0


def cache_directory() -> Path:
    """Return where built partners live; $GKM_PEERS_CACHE wins, then $XDG_CACHE_HOME/gkm/peers."""
    if chosen := os.environ.get("GKM_PEERS_CACHE"):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).absolute() / "gkm" / "peers"


def binary(name: str) -> Path:
    """Return the path of the command `name` of any partner, building it when it is not there yet.

    Raises:
        Missing: it must be built and there is no Go.
        RuntimeError: no partner has such a command, its build failed, or it is of a later tier (GKM_TIER).
    """
    peer, command = find(name)
    tiers.check(name)
    return _provided(peer, command) or _cached(peer, command)


def available(name: str) -> bool:
    """Tell whether `binary(name)` can succeed: it is built, provided, or Go is here to build it."""
    peer, command = find(name)
    return bool(_provided(peer, command)) or _target(peer, command).exists() or bool(find_go())


def find(name: str) -> tuple[Peer, Command]:
    """Return the partner and command called `name`."""
    for directory in directories():
        peer = Peer.read(directory)
        for command in peer.commands:
            if command.name == name:
                return peer, command
    raise RuntimeError(f"no partner below {PEERS} has a command {name!r}")


def directories() -> list[Path]:
    """Return the directory of every partner, cheap ones first so that a failure shows early."""
    found = [path.parent for path in PEERS.glob("*/go.mod")]
    return sorted(found, key=lambda path: ((path / "go.sum").stat().st_size, path.name))


def _provided(peer: Peer, command: Command) -> Path | None:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if peer.name != KUBEBUILDER or not assets:
        return None
    path = Path(assets) / command.name
    return path if os.access(path, os.X_OK) else None


def _target(peer: Peer, command: Command) -> Path:
    return cache_directory() / f"{peer.name}-{peer.key}" / command.name


def _cached(peer: Peer, command: Command) -> Path:
    target = _target(peer, command)
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.with_name(f".{command.name}.lock"), f"{command.name} is being built by another process"):
        if not target.exists():
            _build(peer, command, target)
    return target


@contextmanager
def _locked(path: Path, waiting: str) -> Iterator[None]:
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"{waiting}; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(peer: Peer, command: Command, target: Path) -> None:
    compiler = go()
    # The lock is held, so a temporary file here belongs to a build that was killed.
    temporary = target.with_name(f".{command.name}.building")
    log = target.with_name(f"{command.name}.log")
    environment = {**os.environ, "CGO_ENABLED": "1" if peer.needs_cgo else "0", "GOWORK": "off"}
    arguments = [str(compiler), "build", *peer.flags, WITHOUT_DWARF, "-o", str(temporary), command.package]
    _say(f"building {command.name} ({peer.version(command)})")
    started = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            arguments, cwd=peer.directory, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            while True:
                try:
                    code = process.wait(REPORT_EVERY_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    _say(f"building {command.name}, {time.monotonic() - started:.0f} s so far")
        except BaseException:
            _end(process)
            raise
    if code:
        tail = "\n  ".join(log.read_text(errors="replace").splitlines()[-15:])
        raise RuntimeError(f"building {command.name} failed ({' '.join(arguments)}):\n  {tail}")
    temporary.rename(target)
    log.unlink()
    size = target.stat().st_size / 1e6
    _say(f"built {command.name} in {time.monotonic() - started:.0f} s ({size:.0f} MB)")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the compiler to end, then insist; what hangs in the kernel even then is left to it."""
    for ask in (process.terminate, process.kill):
        ask()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        return


def _say(text: str) -> None:
    print(f"peers: {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Build the partners or commands that were named, or all of them; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m support.peers.build", description=__doc__)
    parser.add_argument("names", nargs="*", help="partners or commands; all of the tier when none is named")
    parser.add_argument("--tier", default="all", help="the tier of tests (support.peers.tiers); all of them without it")
    arguments = parser.parse_args()
    names = arguments.names
    # The Makefile ends a build in the background by this signal; the compiler ends with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    started = time.monotonic()
    peers = [Peer.read(directory) for directory in directories()]
    wanted = [(peer, command) for peer in peers for command in peer.commands]
    if unknown := set(names) - {peer.name for peer in peers} - {command.name for _, command in wanted}:
        parser.error(f"no such partner: {', '.join(sorted(unknown))}")
    named = [command.name for peer, command in wanted if not names or {peer.name, command.name} & set(names)]
    chosen = tiers.commands(arguments.tier, named)
    try:
        for name in chosen:
            binary(name)
    except (Missing, RuntimeError) as problem:
        _say(str(problem))
        return 1
    _say(f"{len(chosen)} commands ready in {time.monotonic() - started:.0f} s: {cache_directory()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
