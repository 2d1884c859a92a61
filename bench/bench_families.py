"""A family of caches on a real node: pods of one manifest, the real Triton, and no person in between.

A first pod compiles kernels. The time runs from its end until the cache of them is Ready on a second node, whose agent
runs beside the first one. A second pod of the same manifest must find every kernel; a third one compiles more, and the
bytes that the registry received for the next generation are compared with the layer of the new kernels. Signatures and
statements are a part of those bytes. Needs root, and the partners of the tests on a real node. Then pods compile for
two kinds of GPU (families_kinds), and many nodes that compiled the same at the same moment push it (families_storm).
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import families_storm
from families_kinds import SECOND, THIRD, expect, side_by_side
from figures import Result
from support.cluster import kwok
from support.cluster.cluster import Cluster
from support.cluster.installation import Installation
from support.e2e.families import Family, capturing
from support.e2e.fleet import Fleet
from support.fakes import nvml_library
from support.host.processes import Process
from support.registry.olareg import Olareg
from support.sigstore.cosign import Cosign

KERNELS = [f"{2**power}:{2**warps}" for power in range(5, 17) for warps in range(6)]
"""Blocks and warps: powers of two, as Triton demands."""


@dataclass(frozen=True)
class FamiliesSize:
    """How many runs there are, how many kernels the first pod and the third one compile, and the nodes of the storm."""

    runs: int
    first: int
    more: int
    nodes: int


FULL = FamiliesSize(runs=7, first=4, more=4, nodes=50)
SMALLEST = FamiliesSize(runs=1, first=1, more=1, nodes=2)


def run(size: FamiliesSize) -> Result:
    """Measure each run in a namespace of its own."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gkm-bench-")))
        fleet = stack.enter_context(_fleet(directory))
        stack.enter_context(capturing(fleet, "auto"))
        for node, gpu in ((SECOND, nvml_library.H100), (THIRD, nvml_library.A100)):
            stack.enter_context(_agent_of(node, gpu, fleet, directory / node))
        result = Result.of([_once(size, fleet, directory / "registry", number) for number in range(size.runs)])
        kinds = Result.of([_two_kinds(size, fleet, number) for number in range(size.runs)])
    storms = Result.of([families_storm.storm(size.nodes) for _ in range(size.runs)])
    figures = {**result.figures, **kinds.figures, **storms.figures}
    return Result(figures, [*result.rows, *kinds.rows, *storms.rows])


@contextmanager
def _fleet(directory: Path) -> Iterator[Fleet]:
    cosign = Cosign.create(directory)
    keys = [cosign.public_key.read_text()]
    with (
        Cluster.start(directory / "c", node=True) as cluster,
        Olareg.start(directory / "registry") as olareg,
        Installation.start(cluster, directory / "gkm", keys=keys, registries=[olareg.host]) as gkm,
    ):
        yield Fleet(cluster, gkm, olareg, cosign)


@contextmanager
def _agent_of(node: str, gpu: nvml_library.Gpu, fleet: Fleet, directory: Path) -> Iterator[None]:
    """Run the agent of another node; the node has no kubelet, because only its store matters."""
    directory.mkdir()
    gkm = fleet.gkm
    fleet.cluster.apply({**kwok.node(node, gpus=1), "spec": {"unschedulable": True}})
    machine = nvml_library.environment(directory, library=nvml_library.build(), gpus=[gpu])
    words: list[str | Path] = ["--config", gkm.config, "--kubeconfig", gkm.account("gkm-agent", node=node)]
    where: list[str | Path] = ["--state", directory / "state", "--run", directory / "run", "--node", node]
    command = [sys.executable, "-m", "gkm_agent.main", *words, *where]
    process = Process.start(f"agent of {node}", command, directory / "agent.log", machine)
    try:
        yield
    finally:
        process.stop()


def _once(size: FamiliesSize, fleet: Fleet, registry: Path, number: int) -> dict[str, float]:
    family = Family(fleet, fleet.new_namespace())
    # Of each run other kernels: the registry must not have their layers already.
    count = size.first + size.more
    all_of_them = KERNELS[number * count : (number + 1) * count]
    known = all_of_them[: size.first]
    expect(family.compiled(*known), hits=0)
    ended = time.monotonic()
    family.ready(1, SECOND)
    ready = time.monotonic() - ended
    family.ready(1, fleet.cluster.node_name)
    expect(family.compiled(*known), hits=len(known))
    before = _stored_bytes(registry)
    expect(family.compiled(*all_of_them), hits=len(known))
    ended = time.monotonic()
    member = family.ready(2, SECOND)
    ready_again = time.monotonic() - ended
    pushed = _stored_bytes(registry) - before
    here = fleet.cluster.node_name
    before_kernels, kernels = (family.on_node(family.ready(each, here), here)["sizeBytes"] for each in (1, 2))
    expect(family.compiled(*all_of_them), hits=len(all_of_them))
    row = {
        "ready_elsewhere_s": ready,
        "second_generation_ready_elsewhere_s": ready_again,
        "new_kernels_bytes": float(kernels - before_kernels),
        "layer_of_new_kernels_bytes": float(family.layers(member)[-1][1]),
        "pushed_bytes": float(pushed),
        "pushed_ratio": pushed / (kernels - before_kernels),
    }
    sys.stderr.write(f"families: run {number + 1} of {size.runs}: {row}\n")
    return row


def _two_kinds(size: FamiliesSize, fleet: Fleet, number: int) -> dict[str, float]:
    kernels = KERNELS[number * size.first : (number + 1) * size.first]
    row = side_by_side(Family(fleet, fleet.new_namespace()), kernels)
    sys.stderr.write(f"families: two kinds of GPU, run {number + 1} of {size.runs}: {row}\n")
    return row


def _stored_bytes(registry: Path) -> int:
    return sum(path.stat().st_size for path in registry.rglob("*") if path.is_file() and path.name != "index.json")
