"""The objects that each check of the installation looks at. Pure.

A check without findings is ok only if it has looked at one; without any, it is skipped, and says what is not there. A
check whose finding is the absence of an object has no subject: it always looks.
"""

from gkm.api.config import Config
from gkm.api.installation import AGENT, CSI, MOUNT
from gkm.api.policies import is_pem

from gkm_cli.doctor.findings import at, items_at
from gkm_cli.doctor.installation.objects import tag_of
from gkm_cli.doctor.installation.observation import CERT_MANAGER, needed
from gkm_cli.doctor.installation.observed import InstallationFacts
from gkm_cli.doctor.runner import Subject


def _configured(observed: InstallationFacts) -> bool:
    return isinstance(observed.config, Config)


def is_known(key: str) -> bool:
    """Return whether a key of a policy is a text or a file of the ConfigMap. Files of other volumes are not known."""
    return is_pem(key) or (key.startswith(MOUNT) and "/" not in key.removeprefix(MOUNT))


def _keys(observed: InstallationFacts) -> bool:
    policies = observed.config.verification.policies if isinstance(observed.config, Config) else []
    return any(is_known(key) for policy in policies for key in policy.keys)


def _enforced(observed: InstallationFacts) -> bool:
    return isinstance(observed.config, Config) and observed.config.verification.mode == "enforce"


def _certificates(observed: InstallationFacts) -> bool:
    if at(observed.webhook, "metadata", "annotations", CERT_MANAGER):
        return bool(at(observed.certificate, "status", "notAfter"))
    return any(at(each, "clientConfig", "caBundle") for each in items_at(observed.webhook, "webhooks"))


def _tags(observed: InstallationFacts) -> bool:
    programs = [each for each in (*observed.daemon_sets.values(), *observed.deployments.values()) if each]
    return bool(programs) and all(map(tag_of, programs))


def _clocks(observed: InstallationFacts) -> bool:
    return any(lease.metadata.name in observed.agents and lease.spec.renew_time for lease in observed.node_leases)


def _reported(observed: InstallationFacts) -> bool:
    return any(report.status.caches for report in observed.reports)


DEFINITIONS = Subject[InstallationFacts](
    "no kind of GKM is installed", lambda observed: any(observed.definitions.values())
)
WEBHOOK = Subject[InstallationFacts]("the webhook is not registered", lambda observed: observed.webhook)
CACHES = Subject[InstallationFacts]("there is no cache", lambda observed: observed.caches)
REPORTED = Subject[InstallationFacts]("no node reports a cache", _reported)
ENFORCED = Subject[InstallationFacts]("no configuration requires signatures", _enforced)
KEYS = Subject[InstallationFacts]("no policy names a key that the configuration holds", _keys)
FEATURES = Subject[InstallationFacts](
    "no feature that needs further rights is switched on", lambda observed: needed(observed.config)
)
CERTIFICATES = Subject[InstallationFacts]("the webhook has no certificate whose end is known", _certificates)
CSI_DRIVER = Subject[InstallationFacts]("there is no CSIDriver", lambda observed: observed.driver)
CSI_PODS = Subject[InstallationFacts]("no pod of gkm-csi exists", lambda observed: observed.pods_of(CSI))
AGENT_PODS = Subject[InstallationFacts]("no pod of gkm-agent exists", lambda observed: observed.pods_of(AGENT))
AGENT_NODES = Subject[InstallationFacts](
    "the DaemonSet gkm-agent wants no node",
    lambda observed: at(observed.daemon_sets.get(AGENT), "status", "desiredNumberScheduled"),
)
RUNTIME_CLASSES = Subject[InstallationFacts](
    "no pod of GKM names a RuntimeClass", lambda observed: observed.runtime_classes
)
PRIORITY_CLASSES = Subject[InstallationFacts](
    "no pod of GKM names a PriorityClass", lambda observed: observed.priority_classes
)
LEASE = Subject[InstallationFacts]("there is no Lease of the controllers", lambda observed: observed.lease)
PROGRAMS = Subject[InstallationFacts]("no program of GKM is installed, or an image is by digest", _tags)
NODES = Subject[InstallationFacts](
    "there is no node, or no DaemonSet gkm-agent", lambda observed: observed.nodes and observed.daemon_sets.get(AGENT)
)
NODES_WITH_AGENT = Subject[InstallationFacts]("no node has an agent", lambda observed: observed.nodes_with_agent)
CLOCKS = Subject[InstallationFacts]("no node with an agent has a Lease", _clocks)
NODES_WITH_CACHES = Subject[InstallationFacts](
    "no node has an agent or reports a cache", lambda observed: observed.nodes_with_agent or _reported(observed)
)
REPORTS = Subject[InstallationFacts]("there is no report of a node", lambda observed: observed.reports)
ENFORCED_CACHES = Subject[InstallationFacts](
    "there is no cache, or no configuration requires signatures",
    lambda observed: observed.caches and _enforced(observed),
)
CONFIGURED_CACHES = Subject[InstallationFacts](
    "there is no cache, or no configuration", lambda observed: observed.caches and _configured(observed)
)
LABELED_PODS = Subject[InstallationFacts]("no pod has the label of a cache", lambda observed: observed.labeled_pods)
GROUPS = Subject[InstallationFacts](
    "there is no group template, pool or group, or no configuration",
    lambda observed: observed.group_objects and _configured(observed),
)
CONFIGURATION = Subject[InstallationFacts]("there is no configuration", _configured)
CAPTURES = Subject[InstallationFacts](
    "no node reports a capture", lambda observed: any(report.status.captures for report in observed.reports)
)
