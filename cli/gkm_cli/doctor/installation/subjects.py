"""The objects that each check of the installation looks at. Pure.

A check without findings is ok only if it has looked at one; without any, it is skipped, and says what is not there. A
check whose finding is the absence of an object has no subject: it always looks.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from gkm.api.config import Config
from gkm.api.installation import AGENT, CSI

from gkm_cli.doctor.findings import at, items_at
from gkm_cli.doctor.installation.configuration import needed
from gkm_cli.doctor.installation.observed import InstallationFacts
from gkm_cli.doctor.installation.waiting import with_volume

Find = Callable[[InstallationFacts], object]


class Subject(NamedTuple):
    """The objects of a check: `find` returns a true value if there is any; `absent` says that there is none."""

    absent: str
    find: Find


def _configured(observed: InstallationFacts) -> bool:
    return isinstance(observed.config, Config)


def _definitions(observed: InstallationFacts) -> bool:
    return any(observed.definitions.values())


def _keys(observed: InstallationFacts) -> bool:
    return isinstance(observed.config, Config) and any(each.keys for each in observed.config.verification.policies)


def _enforced(observed: InstallationFacts) -> bool:
    return isinstance(observed.config, Config) and observed.config.verification.mode == "enforce"


def _certificates(observed: InstallationFacts) -> bool:
    bundles = [at(each, "clientConfig", "caBundle") for each in items_at(observed.webhook, "webhooks")]
    return bool(at(observed.certificate, "status", "notAfter") if observed.certificate else any(bundles))


def _nodes_with_agent(observed: InstallationFacts) -> bool:
    return any(node.metadata.name in observed.agents for node in observed.nodes)


def _clocks(observed: InstallationFacts) -> bool:
    return any(lease.metadata.name in observed.agents and lease.spec.renew_time for lease in observed.node_leases)


def _reported(observed: InstallationFacts) -> bool:
    return any(report.status.caches for report in observed.reports)


_DEFINITIONS = Subject("no kind of GKM is installed", _definitions)
_WEBHOOK = Subject("the webhook is not registered", lambda observed: observed.webhook)
_CACHES = Subject("there is no cache", lambda observed: observed.caches)
_REPORTED = Subject("no node reports a cache", _reported)
SUBJECTS: Final[Mapping[str, Subject]] = {
    "kinds/foreign": _DEFINITIONS,
    "kinds/outdated": _DEFINITIONS,
    "config/trust": Subject("no configuration requires signatures", _enforced),
    "config/keys": Subject("no policy names a key", _keys),
    "config/rights": Subject(
        "no feature that needs further rights is switched on", lambda observed: needed(observed.config)
    ),
    "webhook/endpoints": _WEBHOOK,
    "webhook/ca-bundle": _WEBHOOK,
    "webhook/expired": Subject("the webhook has no certificate whose end is known", _certificates),
    "csi/driver-settings": Subject("there is no CSIDriver", lambda observed: observed.driver),
    "csi/not-ready": Subject("no pod of gkm-csi exists", lambda observed: observed.pods_of(CSI)),
    "csi/not-registered": Subject("no pod of gkm-csi exists", lambda observed: observed.pods_of(CSI)),
    "agent/not-ready": Subject("no pod of gkm-agent exists", lambda observed: observed.pods_of(AGENT)),
    "agent/absent": Subject(
        "the DaemonSet gkm-agent wants no node",
        lambda observed: at(observed.daemon_sets.get(AGENT), "status", "desiredNumberScheduled"),
    ),
    "classes/runtime": Subject("no pod of GKM names a RuntimeClass", lambda observed: observed.runtime_classes),
    "classes/priority": Subject("no pod of GKM names a PriorityClass", lambda observed: observed.priority_classes),
    "controllers/leader": Subject("there is no Lease of the controllers", lambda observed: observed.lease),
    "controllers/versions": Subject(
        "no program of GKM is installed",
        lambda observed: any((*observed.daemon_sets.values(), *observed.deployments.values())),
    ),
    "nodes/label": Subject(
        "there is no node, or no DaemonSet gkm-agent",
        lambda observed: observed.nodes and observed.daemon_sets.get(AGENT),
    ),
    "nodes/kubelet": Subject("no node has an agent", _nodes_with_agent),
    "nodes/clock": Subject("no node with an agent has a Lease", _clocks),
    "nodes/disk-full": Subject(
        "no node has an agent or reports a cache", lambda observed: _nodes_with_agent(observed) or _reported(observed)
    ),
    "nodes/driver-too-old": _REPORTED,
    "nodes/stale-reports": Subject("there is no report of a node", lambda observed: observed.reports),
    "caches/no-policy": Subject(
        "there is no cache, or no configuration requires signatures",
        lambda observed: observed.caches and _enforced(observed),
    ),
    "caches/signature": Subject(
        "there is no cache, or no configuration", lambda observed: observed.caches and _configured(observed)
    ),
    "caches/credentials": _CACHES,
    "caches/refused": _CACHES,
    "caches/failed": _REPORTED,
    "caches/stuck": _REPORTED,
    "caches/no-node": _CACHES,
    "caches/waiting-pods": Subject("no pod with a volume of GKM is Pending", with_volume),
    "caches/by-label": Subject("no pod has the label of a cache", lambda observed: observed.labeled_pods),
    "groups/inactive": Subject(
        "there is no group template, pool or group, or no configuration",
        lambda observed: observed.group_objects and _configured(observed),
    ),
    "captures/destination": Subject("there is no configuration", _configured),
    "captures/refused": Subject(
        "no node reports a capture", lambda observed: any(report.status.captures for report in observed.reports)
    ),
}
"""By the name of the check."""
