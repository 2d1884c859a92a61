"""deploy/ as `make manifests` writes it: for tests and benches, rendered again when the chart has changed."""

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from support.chart.helm import CHART
from support.peers import build as peers

ROOT = CHART.parents[2]
DEPLOY = ROOT / "build" / "deploy"
_SOURCES = (CHART, ROOT / "crds", ROOT / "scripts" / "kustomizations", Path(__file__).with_name("helm.py"))


@cache
def rendered() -> Path:
    """Return the directory with base, components, overlays and remove-state. One process renders, others wait for it.

    Raises:
        support.peers.missing.Missing: Helm must be built, and there is no Go.
    """
    stamp, sources = DEPLOY.with_name("deploy.sources"), _digest()
    DEPLOY.parent.mkdir(exist_ok=True)
    with DEPLOY.with_name("deploy.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not DEPLOY.is_dir() or not stamp.exists() or stamp.read_text(encoding="utf-8") != sources:
            _render()
            stamp.write_text(sources, encoding="utf-8")
    return DEPLOY


def _render() -> None:
    peers.binary("helm")
    # As a program: benches and processes of tests have no path to its modules.
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    command = [sys.executable, str(ROOT / "scripts" / "manifests.py"), str(DEPLOY)]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def _digest() -> str:
    digest = hashlib.sha256()
    for path in _files():
        digest.update(f"{path.relative_to(ROOT)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _files() -> Iterator[Path]:
    for source in _SOURCES:
        found = sorted(source.rglob("*")) if source.is_dir() else [source]
        yield from (path for path in found if path.is_file() and path.suffix != ".pyc")
