"""A cluster to develop against: `PYTHONPATH=tests python hack/cluster.py [--node]` prints its kubeconfig."""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from support.cluster.cluster import Cluster
from support.host.processes import ProcessFailed
from support.peers.missing import Missing

CRDS = Path(__file__).resolve().parents[1] / "crds"


def main() -> int:
    """Run the cluster until a signal; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--node", action="store_true", help="with kubelet and containerd (root, Linux)")
    arguments = parser.parse_args()
    waited_for = {signal.SIGINT, signal.SIGTERM}
    try:
        with (
            tempfile.TemporaryDirectory(prefix="gkm-", ignore_cleanup_errors=True) as directory,
            Cluster.start(Path(directory) / "c", node=arguments.node) as cluster,
        ):
            cluster.apply(CRDS)
            print(f"export KUBECONFIG={cluster.kubeconfig}", flush=True)
            signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
            signal.sigwait(waited_for)
    except (Missing, ProcessFailed) as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
