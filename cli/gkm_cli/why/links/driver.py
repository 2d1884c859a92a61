"""The driver: the CSIDriver object exists, and kubelet of the node has registered gkm-csi."""

from gkm.api.features import INSTALL
from gkm.api.installation import DRIVER

from gkm_cli.why.facts import Facts
from gkm_cli.why.outcome import Broken, Holds, Outcome, kubectl


def decide(facts: Facts) -> Outcome:
    """Decide about the driver."""
    if facts.has_driver.value is None:
        return Broken(f"the cluster has no CSIDriver {DRIVER}", f"install GKM: {INSTALL}")
    node = facts.csi_node.value
    name = facts.pod.spec.node_name
    if node is None or DRIVER not in node.drivers:
        pods = kubectl("get", "pods", "-n", "gkm-system", "-o", "wide", f"--field-selector=spec.nodeName={name}")
        return Broken(
            f"kubelet of {name} has not registered {DRIVER}",
            f"see whether gkm-csi runs there: {pods}; it runs on nodes with the label of its DaemonSet",
        )
    return Holds(f"{DRIVER} is registered on {name}")
