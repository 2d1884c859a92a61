"""The CSI driver, and the two DaemonSets: they are there, ours, and run where they must. Pure."""

from collections.abc import Iterator
from functools import partial

from gkm.api.features import INSTALL
from gkm.api.installation import AGENT, CSI, DRIVER, NAMESPACE, driver_differences, is_our_daemon_set

from gkm_cli.doctor.findings import Finding, command, some, text_at
from gkm_cli.doctor.installation import subjects
from gkm_cli.doctor.installation.observation import check
from gkm_cli.doctor.installation.observed import InstallationFacts, number, problem

_ON_NODES = "driver daemon_sets config_map"
"""The parts of the CSI path, and the configuration that says whether pods use it."""
_HARM = {AGENT: "no cache reaches a node", CSI: "no pod with a cache starts"}


@check("csi/driver-missing", "the CSIDriver is there", _ON_NODES)
def driver_missing(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield a problem if the CSIDriver csi.gkm.io does not exist."""
    if observed.driver is None and observed.needs_nodes:
        why = "kubelet then tries to attach the volume, and pods wait forever"
        yield problem("CSIDriver", DRIVER, "it does not exist", why, INSTALL)


@check("csi/driver-settings", "the CSIDriver has our settings", "driver", subjects.CSI_DRIVER)
def driver_settings(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield a problem if the CSIDriver has other settings than GKM ships."""
    if observed.driver is not None and (differences := driver_differences(observed.driver)):
        why = "kubelet refuses inline volumes, changes a shared cache, or hides the pod's namespace"
        hint = f"kubectl delete csidriver {DRIVER}, then {INSTALL}: its fields cannot be changed"
        yield problem("CSIDriver", DRIVER, "; ".join(differences), why, hint)


@check("csi/not-registered", "every kubelet knows the driver", "csi_nodes pods", subjects.CSI_PODS)
def not_registered(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the nodes whose kubelet has not registered the CSI driver that runs there."""
    drivers = {found.metadata.name: found.drivers for found in observed.csi_nodes}
    ready = {pod.spec.node_name for pod in observed.pods_of(CSI) if pod.is_ready and observed.is_settled(pod.changed)}
    for node in sorted(ready):
        if DRIVER not in drivers.get(node, frozenset()):
            why = "kubelet looks for drivers in another directory than gkm-csi uses, or does not run"
            hint = "set hostPaths.kubelet of the chart to kubelet's --root-dir on the node (docs/reference/chart.md)"
            yield problem("CSINode", node, f"kubelet has not registered {DRIVER}", why, hint)


@check("agent/absent", "an agent runs on every node that it should", "daemon_sets pods nodes", subjects.AGENT_NODES)
def agent_absent(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield a problem if the DaemonSet's status shows fewer agents than nodes that should have one.

    It knows taints, terms and limits; only nodes within the grace period are not expected to have their pod yet.
    """
    new = [
        node
        for node in observed.nodes
        if not observed.is_settled(node.metadata.creation_timestamp) and node.metadata.name not in observed.agents
    ]
    daemon_set = observed.daemon_sets.get(AGENT)
    if observed.without_agent > len(new) and observed.is_settled(text_at(daemon_set, "metadata", "creationTimestamp")):
        hint = f"kubectl describe daemonset {AGENT} -n {NAMESPACE}: its Events name what forbids the pod"
        detail = f"it has no pod on {observed.without_agent} of {number(daemon_set, 'desiredNumberScheduled')} nodes"
        yield problem("DaemonSet", AGENT, detail, "caches do not reach these nodes", hint, namespace=NAMESPACE)


@check("classes/runtime", "every RuntimeClass that pods name is there", "runtime_classes", subjects.RUNTIME_CLASSES)
def runtime_class(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the RuntimeClasses that pods of GKM name and that do not exist."""
    for name, found in observed.runtime_classes.items():
        if found is None:
            why = "the API server refuses the agent's pods"
            hint = (
                "install NVIDIA's GPU operator, create the class, or set agent.driverRoot and agent.runtimeClassName=''"
            )
            yield problem("RuntimeClass", name, "it does not exist, and the agent names it", why, hint)


@check("classes/priority", "every PriorityClass that pods name is there", "priority_classes", subjects.PRIORITY_CLASSES)
def priority_class(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the PriorityClasses that pods of GKM name and that do not exist."""
    for name, found in observed.priority_classes.items():
        if found is None:
            hint = "create it, or set agent.priorityClassName, csi.priorityClassName or operator.priorityClassName"
            yield problem(
                "PriorityClass", name, "it does not exist, and pods of GKM name it", "the API server refuses them", hint
            )


def _missing(observed: InstallationFacts, name: str) -> Iterator[Finding]:
    """Yield a problem if this DaemonSet does not exist, or is not GKM's."""
    found = observed.daemon_sets.get(name)
    is_wrong = observed.needs_nodes if found is None else not is_our_daemon_set(found, name)
    if is_wrong:
        detail, hint = "it does not exist", INSTALL
        if found is not None:
            # Its selector cannot be changed, and Helm takes over no object of another owner.
            detail = "it is not GKM's"
            hint = f"{command('kubectl', 'delete', 'daemonset', name, '-n', NAMESPACE)}, then {INSTALL}"
        yield problem("DaemonSet", name, detail, _HARM[name], hint, namespace=NAMESPACE)


def _not_ready(observed: InstallationFacts, name: str) -> Iterator[Finding]:
    """Yield a problem with the nodes on which the pods of this DaemonSet are not Ready."""
    found = observed.daemon_sets.get(name)
    pods = [pod for pod in observed.pods_of(name) if not pod.is_ready and observed.is_settled(pod.changed)]
    if found is None or not pods or number(found, "numberReady") >= number(found, "desiredNumberScheduled"):
        return
    nodes = some(pod.spec.node_name or "no node" for pod in pods)
    detail = f"{len(pods)} of its pods are not ready: {nodes}"
    hint = f"kubectl describe pods -n {NAMESPACE} -l app.kubernetes.io/name={name}"
    yield problem("DaemonSet", name, detail, pods[0].waits_for, hint, namespace=NAMESPACE)


agent_missing = check("agent/missing", "the DaemonSet gkm-agent is there", _ON_NODES)(partial(_missing, name=AGENT))
csi_missing = check("csi/missing", "the DaemonSet gkm-csi is there", _ON_NODES)(partial(_missing, name=CSI))
agent_not_ready = check("agent/not-ready", "every agent is ready", "daemon_sets pods", subjects.AGENT_PODS)(
    partial(_not_ready, name=AGENT)
)
csi_not_ready = check("csi/not-ready", "every gkm-csi is ready", "daemon_sets pods", subjects.CSI_PODS)(
    partial(_not_ready, name=CSI)
)
