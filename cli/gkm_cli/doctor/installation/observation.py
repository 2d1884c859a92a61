"""Reads what the checks of an installation decide on."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from gkm.api import crds
from gkm.api.config import Config, ConfigInvalid
from gkm.api.definition_origin import DefinitionOrigin, compare
from gkm.api.features import Feature
from gkm.api.installation import ADMISSION, AGENT, CONFIG_MAP, CONTROLLERS, CSI, DRIVER, NAMESPACE
from gkm.api.pod_caches import CACHE, CLUSTER_CACHE
from gkm.kube.leases import LEASES
from gkm.kube.resources import (
    CLUSTERGKMCACHENODES,
    CLUSTERGKMCACHES,
    CONFIGMAPS,
    CSI_DRIVERS,
    CSI_NODES,
    DAEMON_SETS,
    DEFINITIONS,
    GKMCACHENODES,
    GKMCACHES,
    GROUPTEMPLATES,
    NODES,
    POOLS,
    TASKGROUPS,
    VALIDATING_WEBHOOKS,
    Json,
    Resource,
)

from gkm_cli.clusters.reads import Unreadable
from gkm_cli.doctor.findings import Finding, at
from gkm_cli.doctor.installation.objects import (
    GroupObject,
    InstalledNode,
    InstalledPod,
    LabeledPod,
    NodeLease,
    WaitingPod,
    named_classes,
)
from gkm_cli.doctor.installation.observed import InstallationFacts, Objects
from gkm_cli.doctor.runner import Check, ClusterReader, Collection, Subject
from gkm_cli.inputs.pods import RegisteredDrivers


def _json(api_version: str, kind: str, plural: str, *, namespaced: bool = False) -> Resource[Json]:
    return Resource(api_version, kind, plural, namespaced=namespaced, type=Json)


DEPLOYMENTS = _json("apps/v1", "Deployment", "deployments", namespaced=True)
RUNTIME_CLASSES = _json("node.k8s.io/v1", "RuntimeClass", "runtimeclasses")
PRIORITY_CLASSES = _json("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses")
BINDINGS = _json("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings")
CERTIFICATES = _json("cert-manager.io/v1", "Certificate", "certificates", namespaced=True)
NODE_LEASES = Collection(LEASES.of(NodeLease), namespace="kube-node-lease")
PODS = Collection(Resource("v1", "Pod", "pods", namespaced=True, type=InstalledPod), namespace=NAMESPACE)
LABELED_PODS = tuple(
    Collection(Resource("v1", "Pod", "pods", namespaced=True, type=LabeledPod), labels=labels)
    for labels in (CACHE, f"{CLUSTER_CACHE},!{CACHE}")
)
WAITING_PODS = Collection(
    Resource("v1", "Pod", "pods", namespaced=True, type=WaitingPod), fields="status.phase=Pending"
)
SLICES = Collection(
    _json("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", namespaced=True),
    labels=f"kubernetes.io/service-name={ADMISSION}",
    namespace=NAMESPACE,
)
OURS: Mapping[str, Json] = {one["metadata"]["name"]: one for one in crds.definitions().values()}
CACHE_WEBHOOK = "gkm-caches"
CERT_MANAGER = "cert-manager.io/inject-ca-from"
ACCOUNTS = (AGENT, CONTROLLERS, ADMISSION)


def observe(reader: ClusterReader, fields: Sequence[str]) -> InstallationFacts:
    """Return the facts of an installation with these fields read from the cluster.

    Raises:
        Unreadable: some cannot be read; the message names all of these.
    """
    values = reader.all(*(partial(SOURCES[field], reader) for field in fields))
    return InstallationFacts(now=reader.now(), cutoff=reader.cutoff, **dict(zip(fields, values, strict=True)))


def needed(config: Config | ConfigInvalid) -> list[tuple[str, Feature]]:
    """Return the switches of the configuration that are on, each with the feature that it needs."""
    if isinstance(config, ConfigInvalid):
        return []
    topology = config.topology
    switches = (
        (config.network.auto_mnnvl_enabled, "network.autoMNNVLEnabled", Feature.DOMAINS),
        (config.task_groups.enabled, "taskGroups.enabled", Feature.TASK_GROUPS),
        (topology.hyper_nodes.enabled, "topology.hyperNodes.enabled", Feature.TOPOLOGY),
        (bool(topology.kueue), "topology.kueue", Feature.TOPOLOGY),
        (bool(topology.kai), "topology.kai", Feature.TOPOLOGY),
        (topology.node_labels, "topology.nodeLabels", Feature.TOPOLOGY_LABELS),
        (config.packing.pod_gates, "packing.podGates", Feature.POD_GATES),
        (config.kserve.enabled, "kserve.enabled", Feature.KSERVE),
        (config.delivery != "csi", "delivery", Feature.POD_CACHES),
        (config.fabric.node_conditions, "fabric.nodeConditions", Feature.FABRIC_CONDITIONS),
        (config.fabric.node_taint != "none", "fabric.nodeTaint", Feature.FABRIC_TAINTS),
    )
    return [(switch, feature) for on, switch, feature in switches if on]


def differences(definitions: Objects, origin: DefinitionOrigin) -> Iterator[tuple[str, str]]:
    """Yield the names of the definitions of this origin, each with its difference from ours."""
    for name, found in definitions.items():
        if found and (comparison := compare(OURS[name], found)).origin is origin:
            yield name, comparison.difference


def are_ours(definitions: Objects) -> bool:
    """Return whether all these CustomResourceDefinitions exist and are GKM's."""
    return all(definitions.values()) and not any(differences(definitions, DefinitionOrigin.FOREIGN))


def _config_map(reader: ClusterReader) -> Json | None:
    return reader.get(CONFIGMAPS, CONFIG_MAP, NAMESPACE)


def _webhook(reader: ClusterReader) -> Json | None:
    return reader.get(VALIDATING_WEBHOOKS, CACHE_WEBHOOK)


def _certificate(reader: ClusterReader) -> Json | None:
    by_cert_manager = at(_webhook(reader), "metadata", "annotations", CERT_MANAGER)
    return reader.get(CERTIFICATES, ADMISSION, NAMESPACE) if by_cert_manager else None


def _daemon_sets(reader: ClusterReader) -> Objects:
    return _all(reader, DAEMON_SETS, (AGENT, CSI), NAMESPACE)


def _deployments(reader: ClusterReader) -> Objects:
    return _all(reader, DEPLOYMENTS, (CONTROLLERS, ADMISSION), NAMESPACE)


def _bindings(reader: ClusterReader) -> Objects:
    config = InstallationFacts(now=reader.now(), cutoff="", config_map=_config_map(reader)).config
    return _all(reader, BINDINGS, (*ACCOUNTS, *(feature.binding for _, feature in needed(config))))


def _classes(reader: ClusterReader, resource: Resource[Json], field: str) -> Objects:
    workloads = [*_daemon_sets(reader).values(), *_deployments(reader).values()]
    return _all(reader, resource, named_classes(workloads, field))


def _kinds_are_ours(reader: ClusterReader) -> bool:
    """Return whether objects of our kinds mean anything; True for a reader who may read one namespace only.

    An object of another product that has not our form cannot be decoded, and is named then.
    """
    try:
        return are_ours(_all(reader, DEFINITIONS, OURS))
    except Unreadable:
        if reader.namespace:
            return True
        raise


def _ours(reader: ClusterReader, *resources: Resource[Any]) -> tuple[Any, ...]:
    """Return the objects of our kinds; none if the kinds are not ours, because their fields have no meaning then."""
    if not _kinds_are_ours(reader):
        return ()
    read = [each for each in resources if each.namespaced or not reader.namespace]
    return tuple(found for each in read for found in reader.list(Collection(each)))


def _group_objects(reader: ClusterReader) -> tuple[tuple[str, GroupObject], ...]:
    """Return the objects of group templates, each with its kind."""
    kinds_of_groups = (GROUPTEMPLATES, POOLS, TASKGROUPS)
    return tuple((each.kind, found) for each in kinds_of_groups for found in _ours(reader, each.of(GroupObject)))


def _all(
    reader: ClusterReader, resource: Resource[Json], names: Iterable[str], namespace: str | None = None
) -> Objects:
    wanted = tuple(names)
    found = reader.all(*(partial(reader.get, resource, name, namespace) for name in wanted))
    return dict(zip(wanted, found, strict=True))


SOURCES: Mapping[str, Callable[[ClusterReader], Any]] = {
    "definitions": lambda reader: _all(reader, DEFINITIONS, OURS),
    "config_map": _config_map,
    "webhook": _webhook,
    "certificate": _certificate,
    "slices": lambda reader: reader.list(SLICES),
    "driver": lambda reader: reader.get(CSI_DRIVERS, DRIVER),
    "csi_nodes": lambda reader: reader.list(Collection(CSI_NODES.of(RegisteredDrivers))),
    "daemon_sets": _daemon_sets,
    "deployments": _deployments,
    "bindings": _bindings,
    "runtime_classes": lambda reader: _classes(reader, RUNTIME_CLASSES, "runtimeClassName"),
    "priority_classes": lambda reader: _classes(reader, PRIORITY_CLASSES, "priorityClassName"),
    "lease": lambda reader: reader.get(LEASES.of(Json), CONTROLLERS, NAMESPACE),
    "node_leases": lambda reader: reader.list(NODE_LEASES),
    "pods": lambda reader: reader.list(PODS),
    "nodes": lambda reader: reader.list(Collection(NODES.of(InstalledNode))),
    "caches": lambda reader: _ours(reader, GKMCACHES, CLUSTERGKMCACHES),
    "reports": lambda reader: _ours(reader, GKMCACHENODES, CLUSTERGKMCACHENODES),
    "group_objects": _group_objects,
    "waiting_pods": lambda reader: reader.list(WAITING_PODS),
    "labeled_pods": lambda reader: [pod for each in LABELED_PODS for pod in reader.list(each)],
}
"""How each field of `InstallationFacts` is read."""


def check(
    name: str, passed: str, fields: str, subject: Subject[InstallationFacts] | None = None, *, cluster_wide: bool = True
) -> Callable[[Callable[[InstallationFacts], Iterator[Finding]]], Check[InstallationFacts]]:
    """Make a check of a function that decides on these fields of `InstallationFacts`, each of which is read once."""
    return lambda decide: Check(name, passed, decide, observe, fields.split(), subject, cluster_wide)
