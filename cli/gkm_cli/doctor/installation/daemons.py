"""The CSI driver, and the two DaemonSets: they are there, ours, and run where they must. Pure."""

from collections.abc import Iterator

from gkm.api.features import INSTALL
from gkm.api.installation import AGENT, CSI, DRIVER, NAMESPACE, driver_differences, is_our_daemon_set

from gkm_cli.doctor.findings import Finding, command, some, text_at
from gkm_cli.doctor.installation.observed import InstallationFacts, number, problem

_HARM = {AGENT: "no cache reaches a node", CSI: "no pod with a cache starts"}


def driver_missing(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield a problem if the CSIDriver csi.gkm.io does not exist."""
    if observed.driver is None and observed.needs_nodes:
        why = "kubelet then tries to attach the volume, and pods wait forever"
        yield problem("CSIDriver", DRIVER, "it does not exist", why, INSTALL)


def driver_settings(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield a problem if the CSIDriver has other settings than GKM ships."""
    if observed.driver is not None and (differences := driver_differences(observed.driver)):
        why = "kubelet refuses inline volumes, changes a shared cache, or hides the pod's namespace"
        hint = f"kubectl delete csidriver {DRIVER}, then {INSTALL}: its fields cannot be changed"
        yield problem("CSIDriver", DRIVER, "; ".join(differences), why, hint)


def not_registered(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the nodes whose kubelet has not registered the CSI driver that runs there."""
    drivers = {found.metadata.name: found.drivers for found in observed.csi_nodes}
    ready = {pod.spec.node_name for pod in observed.pods_of(CSI) if pod.is_ready and observed.is_settled(pod.changed)}
    for node in sorted(ready):
        if DRIVER not in drivers.get(node, frozenset()):
            why = "kubelet looks for drivers in another directory than gkm-csi uses, or does not run"
            hint = "set hostPaths.kubelet of the chart to kubelet's --root-dir on the node (docs/reference/chart.md)"
            yield problem("CSINode", node, f"kubelet has not registered {DRIVER}", why, hint)


def agent_missing(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield a problem if the agent's DaemonSet does not exist, or is not GKM's."""
    return _missing(observed, AGENT)


def csi_missing(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield a problem if the CSI driver's DaemonSet does not exist, or is not GKM's."""
    return _missing(observed, CSI)


def agent_not_ready(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the nodes whose agent is not Ready."""
    return _not_ready(observed, AGENT)


def csi_not_ready(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the nodes whose CSI driver is not Ready."""
    return _not_ready(observed, CSI)


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


def runtime_class(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the RuntimeClasses that pods of GKM name and that do not exist."""
    for name, found in observed.runtime_classes.items():
        if found is None:
            why = "the API server refuses the agent's pods"
            hint = (
                "install NVIDIA's GPU operator, create the class, or set agent.driverRoot and agent.runtimeClassName=''"
            )
            yield problem("RuntimeClass", name, "it does not exist, and the agent names it", why, hint)


def priority_class(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the PriorityClasses that pods of GKM name and that do not exist."""
    for name, found in observed.priority_classes.items():
        if found is None:
            hint = "create it, or set agent.priorityClassName, csi.priorityClassName or operator.priorityClassName"
            yield problem(
                "PriorityClass", name, "it does not exist, and pods of GKM name it", "the API server refuses them", hint
            )


def _missing(observed: InstallationFacts, name: str) -> Iterator[Finding]:
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
    found = observed.daemon_sets.get(name)
    pods = [pod for pod in observed.pods_of(name) if not pod.is_ready and observed.is_settled(pod.changed)]
    if found is None or not pods or number(found, "numberReady") >= number(found, "desiredNumberScheduled"):
        return
    nodes = some(pod.spec.node_name or "no node" for pod in pods)
    detail = f"{len(pods)} of its pods are not ready: {nodes}"
    hint = f"kubectl describe pods -n {NAMESPACE} -l app.kubernetes.io/name={name}"
    yield problem("DaemonSet", name, detail, pods[0].waits_for, hint, namespace=NAMESPACE)
