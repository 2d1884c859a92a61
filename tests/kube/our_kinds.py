"""Installing our CustomResourceDefinitions in a test's cluster."""

from pathlib import Path

from testbed.cluster import Cluster

ROOT = Path(__file__).resolve().parents[2]


def install(cluster: Cluster) -> None:
    """Apply crds/ and wait until the API server serves them; idempotent."""
    cluster.apply(ROOT / "crds")
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "--filename", str(ROOT / "crds"))
