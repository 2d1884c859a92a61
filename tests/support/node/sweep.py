"""Takes a node off the machine: containers, shims, mounts, cgroups, bridge, sysctls, the paths outside its directory.

It works from what is on disk and in /proc only, so it also cleans up after a node whose owner was killed. It touches
nothing that does not name the node's own directory, bridge or container ids.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from support.host.waiting import until
from support.node.config import Places

MNT_DETACH = 2
SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/ip_forward",
)
"""What kubelet and the bridge plugin set on the whole machine."""
OUTSIDE = (
    "/var/lib/kubelet",
    "/var/lib/kubelet/device-plugins",
    "/var/lib/kubelet/device-plugins/kubelet.sock",
    "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint",
    "/var/lib/cni",
    "/var/lib/cni/results",
    "/var/log/containers",
    "/run/containerd",
    "/run/containerd/s",
    "/run/containerd/fifo",
)
"""What kubelet, containerd and CNI make at fixed places; parents before children."""


@dataclass(frozen=True)
class Before:
    """What the machine looked like before the node."""

    bridge: str
    sysctls: dict[str, str]
    absent: tuple[str, ...]

    @classmethod
    def look(cls, bridge: str) -> "Before":
        values = {name: _sysctl(name).read_text().strip() for name in SYSCTLS if _sysctl(name).exists()}
        paths = [*map(Path, OUTSIDE), *(group / "k8s.io" for group in _cgroup_roots())]
        return cls(bridge, values, tuple(str(path) for path in paths if not path.exists()))

    def write(self, directory: Path) -> None:
        (directory / "before.json").write_text(json.dumps(vars(self)))

    @classmethod
    def read(cls, directory: Path) -> "Before":
        value = json.loads((directory / "before.json").read_text())
        return cls(value["bridge"], value["sysctls"], tuple(value["absent"]))


def sweep(directory: Path) -> None:
    """Undo everything a node below `directory` did to the machine. May be repeated."""
    before = Before.read(directory)
    places = Places(directory, before.bridge)
    containers = [path.name for path in places.tasks.glob("*")]
    end_pods(places)
    subprocess.run(["ip", "link", "delete", before.bridge], capture_output=True, check=False)
    results = Path("/var/lib/cni/results")
    _remove_files(found for name in containers for found in results.glob(f"*-{name}-*"))
    _remove_files(results.glob(f"{places.network}-*"))
    _remove_outside(places, before)
    for name, value in before.sysctls.items():
        if _sysctl(name).read_text().strip() != value:
            _sysctl(name).write_text(value)


def end_pods(places: Places) -> None:
    """Take away what the kernel has of pods: processes, mounts, cgroups, networks. What is on disk stays."""
    containers = [path.name for path in places.tasks.glob("*")]
    sockets = [Path(path.read_text().removeprefix("unix://")) for path in places.tasks.glob("*/address")]
    cgroups = [group / "k8s.io" / name for group in _cgroup_roots() for name in containers]
    _kill_all(cgroups, places)
    _unmount_below(places.directory)
    _remove_cgroups(cgroups)
    # A pod's network goes with its namespace, which the kernel ends later, or never while another process keeps it.
    for cable in Path("/sys/class/net", places.bridge, "brif").glob("*"):
        subprocess.run(["ip", "link", "delete", cable.name], capture_output=True, check=False)
    _remove_files(sockets)


def _remove_files(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _remove_cgroups(cgroups: Iterable[Path]) -> None:
    for group in cgroups:
        for child in sorted(group.rglob("*/"), reverse=True):
            _quietly_rmdir(child)
        _quietly_rmdir(group)


def _remove_outside(places: Places, before: Before) -> None:
    links = [path for path in Path("/var/log/containers").glob("*") if path.is_symlink()]
    _remove_files(link for link in links if link.readlink().is_relative_to(places.pod_logs))
    for path in map(Path, reversed(before.absent)):
        if path.is_dir():
            _quietly_rmdir(path)
        else:
            path.unlink(missing_ok=True)


def mounts_below(directory: Path) -> list[str]:
    """Return the mount points at and below `directory`, the last mounted one last."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split(" ")[4].encode().decode("unicode_escape") for line in lines]
    return [point for point in points if Path(point).is_relative_to(directory)]


def _kill_all(cgroups: Iterable[Path], places: Places) -> None:
    def contained() -> set[int]:
        return {int(pid) for group in cgroups for pid in _procs(group)}

    def none_left() -> bool:
        # Containers first: a shim that dies before its container can leave it behind.
        for pid in contained() or _shims(places.socket):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not contained() and not _shims(places.socket)

    until(none_left, f"the containers of {places.directory} to end", 20)


def _procs(group: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return [pid for path in (group, *group.rglob("*/")) for pid in (path / "cgroup.procs").read_text().split()]
    return []


def _shims(socket: Path) -> set[int]:
    """Return containerd's shims that serve our containerd; they are nobody's children."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if b"containerd-shim" in words[0] and str(socket).encode() in words:
                found.add(int(path.parent.name))
    return found


def _unmount_below(directory: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)

    def none_left() -> bool:
        for flags in (0, MNT_DETACH):
            for point in reversed(mounts_below(directory)):
                libc.umount2(os.fsencode(point), flags)
        return not mounts_below(directory)

    until(none_left, f"the mounts below {directory} to go", 10)


def _cgroup_roots() -> list[Path]:
    lines = [line.split(" ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [Path(line[4]) for line in lines if line[line.index("-") + 1] in ("cgroup", "cgroup2")]


def _quietly_rmdir(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.rmdir()


def _sysctl(name: str) -> Path:
    return Path("/proc/sys") / name
