"""A process that plans one run on the lists of a cluster, as `gkm plan` does, and prints the time of each part.

Arguments: files with what kubectl prints of nodes and of pods, and the groups of the run. Out: JSON with milliseconds
of wall and of CPU time by part, and the peak of the process's memory. Twice: from the text, and once more from the
objects that came of it, which is where a controller that watches begins.
"""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gkm.api.topology_settings import Topology
from gkm.packing.inventory import Inventory
from gkm.packing.plan import plan
from gkm.packing.usable_nodes import usable_nodes
from gkm.packing.values import Plan, Request
from gkm.topology import lists
from gkm.topology.eligibility import NodeDemand
from gkm.topology.lists import BLOCK_BYTES
from gkm.topology.survey import survey_nodes
from gkm.topology.usage import usage

POD_GPUS, GROUP_GPUS = 4, 16
FLAVOR = "NVIDIA-H100-80GB-HBM3"


class Clock:
    """Milliseconds of wall and CPU time by part."""

    def __init__(self) -> None:
        self.wall: dict[str, float] = {}
        self.cpu: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Measure the time of the block."""
        began, used = time.perf_counter(), time.process_time()
        yield
        self.wall[name] = 1000 * (time.perf_counter() - began)
        self.cpu[name] = 1000 * (time.process_time() - used)


def main() -> None:
    """Plan, and print the times."""
    clock = Clock()
    with clock.part("read_nodes"):
        nodes = lists.parse_nodes(_blocks(Path(sys.argv[1])))
    with clock.part("read_pods"):
        pods = lists.parse_pods(_blocks(Path(sys.argv[2])))
    request = Request(int(sys.argv[3]) * GROUP_GPUS, POD_GPUS, GROUP_GPUS, spares=1)
    planned = ""
    for prefix in ("", "again_"):
        with clock.part(f"{prefix}usage"):
            used = usage(pods.pods, pods.unread)
        with clock.part(f"{prefix}survey"):
            surveyed = survey_nodes(nodes.nodes, Topology(), nodes.unread)
        with clock.part(f"{prefix}inventory_of"):
            usable = usable_nodes(surveyed, used, NodeDemand(FLAVOR))
        with clock.part(f"{prefix}inventory"):
            inventory = Inventory.from_nodes(usable.nodes)
        with clock.part(f"{prefix}plan"):
            answer = plan(inventory, request, usable.version)
        assert isinstance(answer, Plan), answer
        planned = answer.hash
    figures = {"wall": clock.wall, "cpu": clock.cpu, "peak_rss_mib": _peak_rss_mib()}
    print(json.dumps({**figures, "nodes": len(usable.nodes), "hash": planned, "version": usable.version}))


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while block := file.read(BLOCK_BYTES):
            yield block


def _peak_rss_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    main()
