"""The real agent as a process of its own: its images, its configuration, its start, and its cost when idle."""

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml
from support.agent.store_images import files_of, put_image
from support.host.processes import Process
from support.registry.server import Registry

FILES, FILE_BYTES = 50, 2000
REPOSITORY = "bench/cache"
NODE = "bench"
LONGEST_SECONDS = 600.0
_TICKS = os.sysconf("SC_CLK_TCK")


def put_images(registry: Registry, count: int) -> list[str]:
    """Store `count` different images in REPOSITORY; return their digests."""
    return [put_image(registry.store, REPOSITORY, files_of(str(n), FILES, FILE_BYTES)) for n in range(count)]


def configure(root: Path, host: str) -> None:
    """Write the agent's configuration: images come from `host` by plain HTTP, and need no signature."""
    config = {
        "registries": {"hosts": {host: {"plainHTTP": True}}},
        "verification": {"mode": "off"},
        "store": {"minFreePercent": 0},
    }
    (root / "config.yaml").write_text(yaml.safe_dump(config))


def start(root: Path, variables: Mapping[str, str], *arguments: str | Path) -> Process:
    """Start an agent whose configuration, state and log are below `root`; `arguments` name the source of its caches."""
    places: list[str | Path] = ["--config", root / "config.yaml", "--state", root / "state", "--run", root / "run"]
    words = [sys.executable, "-m", "gkm_agent.main", *arguments, *places, "--node", NODE, "--log-level", "warning"]
    return Process.start("gkm-agent", words, root / "agent.log", variables)


def until_ready(process: Process, began: float, all_ready: Callable[[], bool]) -> float:
    """Wait until all caches are Ready; return the seconds since `began` (monotonic)."""
    process.ready(all_ready, "all caches are Ready", LONGEST_SECONDS)
    return time.monotonic() - began


def idle(pid: int, seconds: float) -> dict[str, float]:
    """Leave it idle; return the CPU seconds that it used, and its memory."""
    before, began = _cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    used, took = _cpu_seconds(pid) - before, time.monotonic() - began
    return {
        "idle_cpu_percent": 100 * used / took,
        "rss_mib": _rss_mib(pid, "VmRSS"),
        "peak_rss_mib": peak_rss_mib(pid),
    }


def peak_rss_mib(pid: int) -> float:
    """Return the peak memory of a process."""
    return _rss_mib(pid, "VmHWM")


def _cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process and its finished children, which read NVML."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(value) for value in fields[11:15]) / _TICKS


def _rss_mib(pid: int, what: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(what)) / 1024
