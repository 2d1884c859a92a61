"""quickstart_s: from `helm install` into an empty cluster to the first pod that reads its cache, on a real node.

The node has our images, as after a pull, and a library of ours that answers as NVML. The cache is pushed and signed
before. Between two runs everything goes, the kinds and the node's disks included.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from figures import Result
from support.cluster import gkm_objects as objects
from support.cluster.cluster import Cluster, KubectlFailed
from support.cluster.deployment import GPU_NODE_LABEL, SYSTEM, Deployment
from support.e2e.product_images import Deployed
from support.fakes import nvml_library
from support.product_images import build
from support.sigstore.cosign import Cosign

CRDS = build.ROOT / "crds"
NAME, NAMESPACE = "llama", "default"


def measured(runs: int, warm_ups: int) -> Result:
    """Measure; each figure counts from the start of `helm install`.

    Raises:
        Missing: this machine cannot run a node, or not build the images.
    """
    with tempfile.TemporaryDirectory(prefix="gkm-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        with Deployed.start(directory / "i", Cosign.create(directory / "cosign")) as deployed:
            deployed.pods.equip([nvml_library.H100])
            deployed.fleet.kubectl("label", "node", deployed.fleet.cluster.node_name, GPU_NODE_LABEL)
            image = str(deployed.fleet.image(NAME))
            rows = [_installed(deployed, image) for _ in range(warm_ups + runs)]
    return Result.of(rows[warm_ups:])


def _installed(deployed: Deployed, image: str) -> dict[str, float]:
    cluster, pods, fleet = deployed.fleet.cluster, deployed.pods, deployed.fleet
    config = pods.config([fleet.cosign.public_key.read_text()], [fleet.olareg.host])
    began = time.monotonic()
    row: dict[str, float] = {}

    def passed(name: str, probe: Callable[[], object]) -> None:
        cluster.until(probe, name)
        row[name] = time.monotonic() - began

    with _removed(cluster, pods):
        pods.release.install({**pods.values(), "config": config})
        row["helm_s"] = time.monotonic() - began
        cluster.apply(objects.pod("user", NAMESPACE, {"cacheName": NAME}, f"cat {objects.MOUNT}/*/* > /dev/null"))
        passed("admitted_s", partial(_declared, deployed, image))
        passed("registered_s", partial(_registered, cluster))
        passed("ready_s", lambda: cluster.get("gkmcache", NAME).get("status", {}).get("ready") == "1/1")
        passed("quickstart_s", lambda: cluster.get("pod", "user")["status"]["phase"] == "Succeeded")
    return row


@contextmanager
def _removed(cluster: Cluster, pods: Deployment) -> Iterator[None]:
    yield
    cluster.kubectl("delete", "pods", "--all", "--namespace", NAMESPACE)
    cluster.kubectl("delete", "gkmcaches", "--all", "--namespace", NAMESPACE)
    pods.release.uninstall()
    cluster.kubectl("delete", "-f", str(CRDS))
    cluster.until(lambda: not cluster.exists("namespace", SYSTEM), "the namespace to go")
    for directory in (pods.state, pods.run_directory):
        shutil.rmtree(directory)


def _declared(deployed: Deployed, image: str) -> bool:
    """Declare the cache; until admission serves, the API server refuses it."""
    try:
        deployed.fleet.declare(NAME, NAMESPACE, image)
    except KubectlFailed:
        return False
    return True


def _registered(cluster: Cluster) -> bool:
    drivers = cluster.objects.get("csinode", cluster.node_name).get("spec", {}).get("drivers") or []
    return any(each["name"] == "csi.gkm.io" for each in drivers)
