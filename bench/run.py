"""`make bench [BENCH=name]`: prints a table of figures and writes build/bench/<name>.json; their names are stable."""

import importlib
import json
import platform
import sys
from pathlib import Path

OUTPUT = Path("build") / "bench"
BENCHES = (
    *("agent", "agent_api", "coldstart", "csi", "delivery", "domains", "fleet", "groups", "install", "layers"),
    *("packing", "peers", "pull", "rollout", "topology", "verify"),
)
"""agent: starts with 200 caches, and idleness; agent_api: the same with a real API server, and its requests; coldstart:
a process up to its first Triton kernels, on an empty cache and on a mounted one; csi: memory, readiness and publish
times; delivery: reads through a mount, and copies; domains: ComputeDomains of 500 PodCliqueSets, created and deleted at
once; fleet: the controllers over 10,000 nodes; groups: 1,000 TaskGroups of five objects, created and deleted at once;
install: what a new user waits for; layers: candidates for a private layer; packing: plans beside those of other rules
and of solvers, and how long they take; peers: one signed image by GKM, and by containerd for an image volume; pull:
registry to files beside its peers; rollout: a new image on 10,000 virtual and 100 real nodes; topology: the tree of
12,500 nodes, and changes of it; verify: the signatures of pull."""


def main() -> int:
    """Run the named benches, or all; return the exit code: 1 if one reports a failure."""
    wanted = sys.argv[1:] or list(BENCHES)
    unknown = [name for name in wanted if name not in BENCHES]
    if unknown:
        sys.stderr.write(f"error: unknown bench {', '.join(unknown)}; the benches are {', '.join(BENCHES)}\n")
        return 2
    OUTPUT.mkdir(parents=True, exist_ok=True)
    failed = False
    for name in wanted:
        result = importlib.import_module(f"bench_{name}").run()
        document = {"machine": machine(), "figures": result.figures, "rows": result.rows}
        (OUTPUT / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
        print(f"\n{name}\n{result.table()}", flush=True)
        for failure in getattr(result, "failures", ()):
            sys.stderr.write(f"{name}: {failure}\n")
            failed = True
    return int(failed)


def machine() -> dict[str, object]:
    """Return kernel, Python and cores of this machine."""
    cores = len([line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("processor")])
    return {"kernel": platform.release(), "python": platform.python_version(), "cores": cores}


if __name__ == "__main__":
    sys.exit(main())
