"""Reads what the checks of an installation decide on."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gkm.api.caches import Cache
from gkm.api.config import ConfigInvalid
from gkm.api.installation import ADMISSION, AGENT, CONFIG_MAP, CONTROLLERS, CSI, DRIVER, NAMESPACE
from gkm.api.nodes import CacheNode
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
from gkm_cli.doctor.findings import Finding, at, nothing
from gkm_cli.doctor.installation import configuration, kinds, webhook
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
from gkm_cli.doctor.installation.subjects import SUBJECTS
from gkm_cli.doctor.runner import ClusterReader, Collection
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
ACCOUNTS = (AGENT, CONTROLLERS, ADMISSION)


@dataclass(frozen=True, slots=True)
class InstallationCheck:
    """A check of `gkm doctor` about the fields of `InstallationFacts` that it names; each field is read once."""

    name: str
    passed: str
    decide: Callable[[InstallationFacts], Iterator[Finding]]
    fields: tuple[str, ...]
    cluster_wide: bool = True

    def run(self, reader: ClusterReader) -> Iterator[Finding]:
        """Read the fields and yield the findings; raise Unreadable if one cannot be read."""
        observed = observe(reader, self.fields)
        findings = list(self.decide(observed))
        yield from findings
        subject = SUBJECTS.get(self.name)
        if not findings and subject and not subject.find(observed):
            yield nothing(subject.absent)


def observe(reader: ClusterReader, fields: tuple[str, ...]) -> InstallationFacts:
    """Return the facts of an installation with these fields read from the cluster.

    Raises:
        Unreadable: some cannot be read; the message names all of these.
    """
    values = reader.all(*(lambda field=field: SOURCES[field](reader) for field in fields))
    return InstallationFacts(now=reader.now(), cutoff=reader.cutoff, **dict(zip(fields, values, strict=True)))


def _definitions(reader: ClusterReader) -> Objects:
    return _all(reader, DEFINITIONS, kinds.OURS)


def _config_map(reader: ClusterReader) -> Json | None:
    return reader.get(CONFIGMAPS, CONFIG_MAP, NAMESPACE)


def _webhook(reader: ClusterReader) -> Json | None:
    return reader.get(VALIDATING_WEBHOOKS, webhook.CACHE_WEBHOOK)


def _certificate(reader: ClusterReader) -> Json | None:
    by_cert_manager = at(_webhook(reader), "metadata", "annotations", webhook.CERT_MANAGER)
    return reader.get(CERTIFICATES, ADMISSION, NAMESPACE) if by_cert_manager else None


def _daemon_sets(reader: ClusterReader) -> Objects:
    return _all(reader, DAEMON_SETS, (AGENT, CSI), NAMESPACE)


def _deployments(reader: ClusterReader) -> Objects:
    return _all(reader, DEPLOYMENTS, (CONTROLLERS, ADMISSION), NAMESPACE)


def _bindings(reader: ClusterReader) -> Objects:
    config = InstallationFacts(now=reader.now(), cutoff="", config_map=_config_map(reader)).config
    features = () if isinstance(config, ConfigInvalid) else (one.binding for _, one in configuration.needed(config))
    return _all(reader, BINDINGS, (*ACCOUNTS, *features))


def _classes(reader: ClusterReader, resource: Resource[Json], field: str) -> Objects:
    workloads = [*_daemon_sets(reader).values(), *_deployments(reader).values()]
    return _all(reader, resource, named_classes(workloads, field))


def _kinds_are_ours(reader: ClusterReader) -> bool:
    """Return whether objects of our kinds mean anything; True for a reader who may read one namespace only.

    An object of another product that has not our form cannot be decoded, and is named then.
    """
    try:
        return kinds.are_ours(_definitions(reader))
    except Unreadable:
        if reader.namespace:
            return True
        raise


def _caches(reader: ClusterReader) -> tuple[Cache, ...]:
    """Return the caches; an empty list if the kinds are not ours, because their fields have no meaning then."""
    if not _kinds_are_ours(reader):
        return ()
    shared = () if reader.namespace else reader.list(Collection(CLUSTERGKMCACHES))
    return (*reader.list(Collection(GKMCACHES)), *shared)


def _reports(reader: ClusterReader) -> tuple[CacheNode, ...]:
    """Return the reports of nodes; as `_caches`."""
    if not _kinds_are_ours(reader):
        return ()
    shared = () if reader.namespace else reader.list(Collection(CLUSTERGKMCACHENODES))
    return (*reader.list(Collection(GKMCACHENODES)), *shared)


def _group_objects(reader: ClusterReader) -> tuple[tuple[str, GroupObject], ...]:
    """Return the objects of group templates; as `_caches`."""
    if not _kinds_are_ours(reader):
        return ()
    read = (TASKGROUPS,) if reader.namespace else (GROUPTEMPLATES, POOLS, TASKGROUPS)
    return tuple((each.kind, made) for each in read for made in reader.list(Collection(each.of(GroupObject))))


def _all(reader: ClusterReader, resource: Resource[Json], names: Any, namespace: str | None = None) -> Objects:  # noqa: ANN401 -- any iterable of names
    wanted = tuple(names)
    found = reader.all(*(lambda name=name: reader.get(resource, name, namespace) for name in wanted))
    return dict(zip(wanted, found, strict=True))


SOURCES: Mapping[str, Callable[[ClusterReader], Any]] = {
    "definitions": _definitions,
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
    "caches": _caches,
    "reports": _reports,
    "group_objects": _group_objects,
    "waiting_pods": lambda reader: reader.list(WAITING_PODS),
    "labeled_pods": lambda reader: [pod for each in LABELED_PODS for pod in reader.list(each)],
}
"""How each field of `InstallationFacts` is read."""
