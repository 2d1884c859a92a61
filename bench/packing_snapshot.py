"""From lists of nodes and pods to a plan: time and memory of a process that does nothing else.

The lists are written to files first, which are then in the page cache.
The inventory read from the lists must have the version of the inventory that wrote them.
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from gkm.packing.usable_nodes import version
from packing_kube_lists import write_nodes, write_pods
from packing_report import Cell, Table
from support.packing.inventories import inventory

_PROCESS = Path(__file__).resolve().parent / "packing_snapshot_process.py"
_SNAPSHOT = ("read_nodes", "read_pods", "usage", "survey", "inventory_of", "inventory")
_WATCHED = tuple(f"again_{part}" for part in ("usage", "survey", "inventory_of", "inventory"))


@dataclass(frozen=True)
class SnapshotSize:
    """The inventory, the groups of the run that is planned, how many processes count and warm up, and their bounds."""

    inventory: str
    groups: int
    runs: int
    warm_ups: int
    slow_ms: float
    large_mib: float


@dataclass
class Snapshot:
    """Milliseconds by part, medians of all runs; figures, and failures."""

    rows: list[dict[str, Cell]] = field(default_factory=list)
    found: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def tables(self) -> list[Table]:
        """Return the parts."""
        sizes = f"{self.found['nodes_mb']:.0f} MB of nodes, {self.found['pods_mb']:.0f} MB of pods"
        return [Table(f"from lists to a plan, ms of one process: {self.found['nodes']:.0f} nodes, {sizes}", self.rows)]

    def figures(self) -> dict[str, float]:
        """Return the total."""
        figures = {f"snapshot_{name}": round(value, 1) for name, value in self.found.items()}
        return {**figures, "rss_mib": figures["snapshot_peak_rss_mib"]}


def measured(size: SnapshotSize) -> Snapshot:
    """Run the process several times."""
    nodes = inventory(size.inventory)
    with tempfile.TemporaryDirectory(prefix="gkm-bench-") as directory:
        lists = Path(directory) / "nodes.json", Path(directory) / "pods.json"
        sizes = write_nodes(lists[0], nodes) / 1e6, write_pods(lists[1], nodes) / 1e6
        seen = [_once(*lists, size.groups) for _ in range(size.warm_ups + size.runs)][size.warm_ups :]
    found = Snapshot(found={"nodes": float(len(nodes)), "nodes_mb": sizes[0], "pods_mb": sizes[1]})
    for part in seen[0]["wall"]:
        wall, cpu = (median(one[kind][part] for one in seen) for kind in ("wall", "cpu"))
        found.rows.append({"part": part, "wall": wall, "cpu": cpu})
    for kind in ("wall", "cpu"):
        for name, parts in (("from_text", _SNAPSHOT), ("from_objects", _WATCHED)):
            found.found[f"{name}_{kind}_ms"] = median(sum(one[kind][part] for part in parts) for one in seen)
    found.found["peak_rss_mib"] = max(one["peak_rss_mib"] for one in seen)
    _check(size, found, same={one["version"] for one in seen} == {version(nodes)})
    return found


def _once(nodes: Path, pods: Path, groups: int) -> dict[str, Any]:
    done = subprocess.run([sys.executable, _PROCESS, nodes, pods, str(groups)], stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _check(size: SnapshotSize, found: Snapshot, *, same: bool) -> None:
    if not same:
        found.failures.append("snapshot: the inventory read from the lists differs from the original")
    for name in ("from_text", "from_objects"):
        # CPU time: on a quiet machine the same as wall time, and on a busy one the part that is ours.
        if found.found[f"{name}_cpu_ms"] > size.slow_ms:
            found.failures.append(f"snapshot {name}: {found.found[f'{name}_cpu_ms']:.0f} ms, above {size.slow_ms:.0f}")
    if found.found["peak_rss_mib"] > size.large_mib:
        found.failures.append(f"snapshot: {found.found['peak_rss_mib']:.0f} MiB, above {size.large_mib:.0f}")
