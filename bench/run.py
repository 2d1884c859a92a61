"""`make bench [BENCH=name] [SMALLEST=1]`: prints figures and writes build/bench/<name>.json; their names are stable.

Each bench is a module `bench_<name>` with `run(size)` and two sizes: FULL, of which documents cite figures, and
SMALLEST, one run with a hundredth of the load. The smallest shows that the bench runs and has all its figures, and no
more: names such as `at_500_…` have the numbers of the full size. It writes into build/bench/smallest.
"""

import argparse
import importlib
import json
import platform
import sys
from pathlib import Path

from gkm.api import msgspec_warmup

OUTPUT = Path("build") / "bench"
BENCHES = (
    *("agent", "agent_api", "coldstart", "csi", "delivery", "domains", "families", "fleet", "followed"),
    *("groups", "install", "layers", "packing", "peers", "pull", "rollout", "topology", "verify"),
)
"""agent: starts with 200 caches, and idleness; agent_api: the same with a real API server, and its requests; coldstart:
a process up to its first Triton kernels, on an empty cache and on a mounted one; csi: memory, readiness and publish
times; delivery: reads through a mount, and copies; domains: ComputeDomains of 500 PodCliqueSets, created and deleted at
once; families: what one pod compiled reaches the next; fleet: the controllers over 10,000 nodes; followed: pods bound
where plans said, and plans beside Kueue's; groups: 1,000 TaskGroups of five objects, created and deleted at once;
install: what a new user waits for; layers: candidates for a private layer; packing: plans beside those of other rules
and of solvers, and how long they take; peers: one signed image by GKM, and by containerd for an image volume; pull:
registry to files beside its peers, and signatures; rollout: a new image on 10,000 virtual and 100 real nodes; topology:
the tree of 12,500 nodes, and changes of it; verify: the signatures alone."""


def main() -> int:
    """Run the named benches, or all; return the exit code: 1 if one reports a failure."""
    options = _options()
    output = options.output or (OUTPUT / "smallest" if options.smallest else OUTPUT)
    output.mkdir(parents=True, exist_ok=True)
    failed = False
    for name in options.names or BENCHES:
        bench = importlib.import_module(f"bench_{name}")
        msgspec_warmup.warm_up()  # benches have threads
        result = bench.run(bench.SMALLEST if options.smallest else bench.FULL)
        size = "smallest" if options.smallest else "full"
        document = {"machine": machine(), "size": size, "figures": result.figures, "rows": result.rows}
        (output / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
        print(f"\n{name}\n{result.table()}", flush=True)
        for failure in getattr(result, "failures", ()):
            sys.stderr.write(f"{name}: {failure}\n")
            failed = True
    return int(failed)


def machine() -> dict[str, object]:
    """Return kernel, Python and cores of this machine."""
    cores = len([line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("processor")])
    return {"kernel": platform.release(), "python": platform.python_version(), "cores": cores}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(BENCHES)}; all without one")
    parser.add_argument("--smallest", action="store_true", help="one run of each, with a hundredth of the load")
    parser.add_argument("--output", type=Path, metavar="DIRECTORY", help="where the JSON goes, instead of build/bench")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in BENCHES]:
        parser.error(f"unknown bench {', '.join(unknown)}; the benches are {', '.join(BENCHES)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
