"""The input of the checks of an installation: values that `observation` has read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from gkm.api.caches import Cache
from gkm.api.config import Config, ConfigInvalid, parse
from gkm.api.installation import AGENT, CONFIG_KEY, CONFIG_MAP, NAMESPACE
from gkm.api.nodes import CacheNode
from gkm.kube.resources import Json

from gkm_cli.clusters.reads import Unreadable
from gkm_cli.doctor.findings import Finding, Severity, at, named
from gkm_cli.doctor.installation.objects import (
    GroupObject,
    InstalledNode,
    InstalledPod,
    LabeledPod,
    NodeLease,
    WaitingPod,
)
from gkm_cli.inputs.pods import RegisteredDrivers

Objects = Mapping[str, Json | None]
"""Objects by their names; None for a missing object."""


@dataclass(frozen=True, kw_only=True)
class InstallationFacts:
    """The facts that one check requested; the others are empty. `cutoff` is the end of the grace period."""

    now: datetime
    cutoff: str
    definitions: Objects = field(default_factory=dict)
    config_map: Json | None = None
    webhook: Json | None = None
    certificate: Json | None = None
    """The Certificate of cert-manager."""
    slices: Sequence[Json] = ()
    """The EndpointSlices of the Service gkm-admission."""
    driver: Json | None = None
    csi_nodes: Sequence[RegisteredDrivers] = ()
    daemon_sets: Objects = field(default_factory=dict)
    deployments: Objects = field(default_factory=dict)
    bindings: Objects = field(default_factory=dict)
    """ClusterRoleBindings."""
    runtime_classes: Objects = field(default_factory=dict)
    """The RuntimeClasses, and below the PriorityClasses, that the pods of GKM name."""
    priority_classes: Objects = field(default_factory=dict)
    lease: Json | None = None
    node_leases: Sequence[NodeLease] = ()
    pods: Sequence[InstalledPod] = ()
    nodes: Sequence[InstalledNode] = ()
    caches: Sequence[Cache] = ()
    reports: Sequence[CacheNode] = ()
    waiting_pods: Sequence[WaitingPod] = ()
    """The pods that are Pending."""
    labeled_pods: Sequence[LabeledPod] = ()
    """The pods that name a cache by a label."""
    group_objects: Sequence[tuple[str, GroupObject]] = ()
    """GroupTemplates, Pools and TaskGroups, each with its kind."""

    @cached_property
    def config(self) -> Config | ConfigInvalid:
        """Return the configuration in the ConfigMap, or why it cannot be used."""
        text = at(self.config_map, "data", CONFIG_KEY)
        if not isinstance(text, str):
            where = f"ConfigMap {NAMESPACE}/{CONFIG_MAP}"
            return ConfigInvalid(f"{where} has no key {CONFIG_KEY}" if self.config_map else f"there is no {where}")
        try:
            return parse(text)
        except ConfigInvalid as error:
            return error

    @property
    def usable_config(self) -> Config:
        """Return the configuration.

        Raises:
            Unreadable: it cannot be used.
        """
        if isinstance(self.config, ConfigInvalid):
            raise Unreadable(f"the configuration cannot be used: {self.config}", "gkm doctor --check config")
        return self.config

    @property
    def needs_nodes(self) -> bool:
        """Return whether pods get their caches by the CSI driver; True without a configuration.

        Raises:
            Unreadable: the configuration cannot be used.
        """
        word = self.usable_config.delivery if self.config_map is not None else "csi"
        return word == "csi" or (word == "auto" and self.driver is not None)

    def pods_of(self, program: str) -> list[InstalledPod]:
        """Return the pods of a program of GKM, such as gkm-agent."""
        return [pod for pod in self.pods if pod.program == program]

    @cached_property
    def agents(self) -> frozenset[str]:
        """Return the names of the nodes on which an agent has a pod."""
        return frozenset(pod.spec.node_name for pod in self.pods_of(AGENT))

    @property
    def nodes_with_agent(self) -> list[InstalledNode]:
        """Return the nodes on which an agent has a pod."""
        return [node for node in self.nodes if node.metadata.name in self.agents]

    @cached_property
    def without_agent(self) -> int:
        """Return how many nodes should have an agent and have none, by the status of its DaemonSet."""
        found = self.daemon_sets.get(AGENT)
        return number(found, "desiredNumberScheduled") - number(found, "currentNumberScheduled")

    def is_settled(self, since: str | None) -> bool:
        """Return whether a timestamp of the API server lies before the grace period for new objects."""
        return (since or "") <= self.cutoff


def number(daemon_set: Json | None, field: str) -> int:
    """Return a count in the status of a DaemonSet; 0 if the status lacks it."""
    value = at(daemon_set, "status", field)
    return value if isinstance(value, int) else 0


def problem(kind: str, name: str, detail: str, why: str, hint: str, *, namespace: str = "") -> Finding:
    """Return a finding of the severity problem about an object."""
    return Finding(Severity.PROBLEM, named(kind, namespace, name), detail, why, hint)


def cache_name(cache: Cache) -> str:
    """Return kind and name of a cache."""
    return named(type(cache).__name__, cache.metadata.namespace, cache.metadata.name)
