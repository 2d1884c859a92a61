"""A bench at its smallest size, as a process: what `make bench BENCH=name SMALLEST=1` runs."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from support.host.waiting import scaled

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 400.0
"""The deadline on a machine with nothing else to do; most benches take seconds."""


def run(*arguments: str | Path, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run bench/run.py in a directory; it ends with what it started."""
    return subprocess.run(
        # With faulthandler, a crash says where it was.
        [sys.executable, "-X", "faulthandler", ROOT / "bench" / "run.py", *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        timeout=scaled(SECONDS),
        check=False,
    )


def smallest(name: str, directory: Path) -> tuple[dict[str, Any], str]:
    """Run a bench, which must succeed; return its document and its table."""
    done = run("--smallest", "--output", directory / "figures", name, directory=directory)
    assert done.returncode == 0, f"{name} ended with {done.returncode}; it said: {done.stderr[-4000:]!r}"
    document: dict[str, Any] = json.loads((directory / "figures" / f"{name}.json").read_text(encoding="utf-8"))
    return document, done.stdout


def unusable(figures: Mapping[str, object], cited: Iterable[str]) -> list[str]:
    """Return the cited figures that are missing, and all figures that are not finite numbers."""
    wrong = {name for name, value in figures.items() if not _is_number(value)}
    return sorted(wrong | (set(cited) - figures.keys()))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
