"""All checks of `gkm doctor`, in their order: causes before their effects (docs/reference/doctor.md).

The last one, `images/signatures`, tells whether the images of GKM's own pods are signed as the policies require. It
reads the data for the policies from registries, as `gkm cache verify` does, with the user's logins.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from gkm.api.config import Config, ConfigInvalid, Policy, Registries, Verification
from gkm.api.errors import GKMError, Reason
from gkm.api.installation import ADMISSION, AGENT, CONFIG_MAP, CONTROLLERS, CSI, MOUNT, NAMESPACE
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry
from gkm.images.signatures.verify import Verdict, Verifier, covers
from msgspec.structs import replace

from gkm_cli.credential_helpers import credentials_from_environment
from gkm_cli.doctor.domains import cluster, compute_domains
from gkm_cli.doctor.domains.listed import ListCheck, ReadingCheck
from gkm_cli.doctor.findings import Finding, Severity, named, nothing, text_at
from gkm_cli.doctor.installation import (
    caches,
    captures,
    configuration,
    controllers,
    daemons,
    kinds,
    nodes,
    waiting,
    webhook,
)
from gkm_cli.doctor.installation.objects import InstalledPod
from gkm_cli.doctor.installation.observation import InstallationCheck, observe
from gkm_cli.doctor.runner import Check, ClusterReader

PROGRAMS = frozenset({AGENT, CSI, CONTROLLERS, ADMISSION})
_CONFIG = named("ConfigMap", NAMESPACE, CONFIG_MAP)
_REFUSED = "install images that a signer of the policy signed, or correct the policy; gkm cache verify has the details"


@dataclass(frozen=True, slots=True)
class SignaturesCheck:
    """The check `images/signatures` of `gkm doctor`: the signatures of GKM's own images."""

    name: str = "images/signatures"
    passed: str = "every image of GKM that a policy names is signed as it requires"
    cluster_wide: bool = True

    def run(self, reader: ClusterReader) -> Iterator[Finding]:
        """Read pods, configuration and signatures, and yield the findings."""
        observed = observe(reader, ("config_map", "pods"))
        if observed.config_map is None:
            yield nothing("there is no configuration")
            return
        if isinstance(observed.config, ConfigInvalid):
            hint = "gkm-operator --check-config --config FILE lists all mistakes in it"
            yield _unknown(_CONFIG, str(observed.config), hint)
            return
        config, names = observed.config, running(pod for pod in observed.pods if pod.program in PROGRAMS)
        with TemporaryDirectory(prefix="gkm-doctor-") as directory:
            files = _written(config, lambda name: text_at(observed.config_map, "data", name), Path(directory))
            yield from decide(names, config.verification, lambda ref, wanted: _verdict(config, files, ref, wanted))
        if not _looked_at(names, config.verification):
            yield nothing("no policy is about the images of GKM that run")


_ON_NODES = ("driver", "daemon_sets", "config_map")
"""The parts of the CSI path, and the configuration that says whether pods use it."""
CHECKS: tuple[Check, ...] = (
    InstallationCheck("kinds/missing", "every kind of GKM is installed", kinds.missing, ("definitions",)),
    InstallationCheck("kinds/foreign", "no kind is another product's", kinds.foreign, ("definitions",)),
    InstallationCheck("kinds/outdated", "every kind is of this version", kinds.outdated, ("definitions",)),
    InstallationCheck("config/invalid", "the configuration can be used", configuration.invalid, ("config_map",)),
    InstallationCheck("config/trust", "the configuration has a policy", configuration.trust, ("config_map", "caches")),
    InstallationCheck("config/keys", "every key of a policy can be used", configuration.keys_readable, ("config_map",)),
    InstallationCheck(
        "config/rights", "every feature that is on has its rights", configuration.rights, ("config_map", "bindings")
    ),
    InstallationCheck("rights/bindings", "every process has its rights", configuration.account_bindings, ("bindings",)),
    InstallationCheck("webhook/missing", "the webhook is registered", webhook.missing, ("webhook",)),
    InstallationCheck("webhook/endpoints", "an admission process answers", webhook.endpoints, ("webhook", "slices")),
    InstallationCheck("webhook/ca-bundle", "the API server can verify the webhook", webhook.bundle, ("webhook",)),
    InstallationCheck(
        "webhook/expired", "the certificate of the webhook is valid", webhook.certificate, ("webhook", "certificate")
    ),
    InstallationCheck("csi/driver-missing", "the CSIDriver is there", daemons.driver_missing, _ON_NODES),
    InstallationCheck("csi/driver-settings", "the CSIDriver has our settings", daemons.driver_settings, ("driver",)),
    InstallationCheck("csi/missing", "the DaemonSet gkm-csi is there", daemons.csi_missing, _ON_NODES),
    InstallationCheck("csi/not-ready", "every gkm-csi is ready", daemons.csi_not_ready, ("daemon_sets", "pods")),
    InstallationCheck(
        "csi/not-registered", "every kubelet knows the driver", daemons.not_registered, ("csi_nodes", "pods")
    ),
    InstallationCheck("agent/missing", "the DaemonSet gkm-agent is there", daemons.agent_missing, _ON_NODES),
    InstallationCheck("agent/not-ready", "every agent is ready", daemons.agent_not_ready, ("daemon_sets", "pods")),
    InstallationCheck(
        "agent/absent",
        "an agent runs on every node that it should",
        daemons.agent_absent,
        ("daemon_sets", "pods", "nodes"),
    ),
    InstallationCheck(
        "classes/runtime", "every RuntimeClass that pods name is there", daemons.runtime_class, ("runtime_classes",)
    ),
    InstallationCheck(
        "classes/priority", "every PriorityClass that pods name is there", daemons.priority_class, ("priority_classes",)
    ),
    InstallationCheck("controllers/missing", "the Deployments are there", controllers.missing, ("deployments",)),
    InstallationCheck(
        "controllers/leader", "one of the controllers leads", controllers.leader, ("deployments", "lease", "pods")
    ),
    InstallationCheck(
        "controllers/versions", "all programs are of one version", controllers.versions, ("daemon_sets", "deployments")
    ),
    InstallationCheck("nodes/label", "every node with GPUs has a label", nodes.label, ("daemon_sets", "nodes", "pods")),
    InstallationCheck("nodes/kubelet", "every kubelet is new enough", nodes.kubelet, ("nodes", "pods")),
    InstallationCheck(
        "nodes/clock", "the clocks of nodes agree with the API server's", nodes.clock, ("nodes", "pods", "node_leases")
    ),
    InstallationCheck(
        "nodes/disk-full", "every node has space for caches", nodes.disk_full, ("nodes", "pods", "reports")
    ),
    InstallationCheck(
        "nodes/driver-too-old", "every GPU driver is new enough for the caches", nodes.driver, ("reports",)
    ),
    InstallationCheck(
        "nodes/stale-reports",
        "every report has its node",
        nodes.stale_reports,
        ("daemon_sets", "nodes", "pods", "reports"),
    ),
    InstallationCheck("caches/no-policy", "a policy covers every image", caches.no_policy, ("config_map", "caches")),
    InstallationCheck("caches/signature", "every image has its signature", caches.signature, ("config_map", "caches")),
    InstallationCheck(
        "caches/credentials", "every image can be fetched", caches.credentials, ("caches",), cluster_wide=False
    ),
    InstallationCheck(
        "caches/refused", "every other image is verified", caches.refused, ("caches",), cluster_wide=False
    ),
    InstallationCheck(
        "caches/failed", "no node fails at a cache", caches.failed, ("caches", "reports"), cluster_wide=False
    ),
    InstallationCheck(
        "caches/stuck",
        "no node has been fetching for too long",
        caches.stuck,
        ("caches", "reports"),
        cluster_wide=False,
    ),
    InstallationCheck(
        "caches/no-node", "every cache fits a node", caches.without_node, ("caches",), cluster_wide=False
    ),
    InstallationCheck(
        "caches/waiting-pods", "no pod waits for a volume", waiting.pods, ("waiting_pods",), cluster_wide=False
    ),
    InstallationCheck(
        "caches/by-label",
        "every pod with the label of a cache was seen by the webhook",
        webhook.unseen,
        ("labeled_pods",),
        cluster_wide=False,
    ),
    InstallationCheck(
        "groups/inactive",
        "every group template, pool and group has its feature",
        kinds.inactive,
        ("config_map", "group_objects"),
    ),
    InstallationCheck("captures/destination", "captures have a destination", captures.destination, ("config_map",)),
    InstallationCheck(
        "captures/refused", "no node refuses a capture", captures.refused, ("reports",), cluster_wide=False
    ),
    ListCheck(
        "domains/node-labels",
        "every node label names a ComputeDomain",
        compute_domains.node_labels,
        ("nodes", "domains"),
        subject=lambda listed: listed.nodes,
        absent="no node has the label of a ComputeDomain",
        cluster_wide=True,
    ),
    ListCheck(
        "domains/terminating",
        "no ComputeDomain is stuck in deletion",
        compute_domains.terminating,
        ("domains", "sets", "templates"),
    ),
    ListCheck(
        "domains/orphans", "every ComputeDomain has its workload", compute_domains.orphans, ("domains", "sets", "pods")
    ),
    ListCheck("domains/readiness", "no ComputeDomain reports a fault", compute_domains.findings, ("domains",)),
    ListCheck(
        "domains/claim-templates",
        "every claim template has its ComputeDomain",
        compute_domains.templates,
        ("domains", "templates"),
        subject=compute_domains.has_templates,
        absent="no ResourceClaimTemplate is of a ComputeDomain",
    ),
    ListCheck(
        "domains/template-names",
        "no other claim template has the name of a domain's",
        compute_domains.template_names,
        ("domains", "templates"),
    ),
    ListCheck(
        "domains/claims",
        "every allocated claim has its pod and its ComputeDomain",
        compute_domains.claims,
        ("pods", "domains", "claims"),
        subject=compute_domains.has_claims,
        absent="no ResourceClaim is of a ComputeDomain",
    ),
    ListCheck(
        "domains/pods",
        "no pod waits for the claim template of a domain",
        compute_domains.waiting_pods,
        ("pods", "domains", "templates"),
        subject=lambda listed: any(pod.spec.resource_claims for pod in listed.pods),
        absent="no pod has a claim",
    ),
    ReadingCheck("domains/version", "the kind ComputeDomain has what GKM needs, or is not in use", cluster.version),
    ReadingCheck("domains/imex", "ComputeDomains are not installed", cluster.imex),
    ReadingCheck("domains/switch", "at most one of GKM and Grove makes ComputeDomains", cluster.switch),
    SignaturesCheck(),
)


def running(pods: Iterable[InstalledPod]) -> list[str]:
    """Return the images of running pods, by digest if the node states it; images without a registry are left out.

    An image without a registry was loaded into the node, so no registry can say who signed it. For an image that has a
    registry's name and was loaded, the node states no name, and the digest of a configuration, which no registry has.
    """
    found = set()
    for pod in pods:
        ids = {each.name: each.image_id.rpartition("@") for each in pod.status.container_statuses or ()}
        for container in pod.spec.containers:
            name, (_, separator, digest) = container.image.partition("@")[0], ids.get(container.name, ("", "", ""))
            if _has_registry(name):
                found.add(f"{name}@{digest}" if separator and digest.startswith("sha256:") else container.image)
    return sorted(found)


def decide(
    references: Iterable[str], wanted: Verification, verify: Callable[[Reference, Verification], Verdict]
) -> Iterator[Finding]:
    """Yield the faults of images' signatures; `verify` gets each image with the policies that cover it."""
    for name in references if wanted.mode != "off" else ():
        image = f"image {name}"
        try:
            ref = Reference.parse(name)
            policies = [policy for policy in wanted.policies if _is_about(policy, ref)]
            if policies and not ref.digest:
                why = "its node states no digest of the registry: it has not started, or was loaded into the node"
                yield _unknown(image, why, "run the command again when its pods run; loaded images cannot be verified")
            elif policies:
                yield from _judged(image, verify(ref, replace(wanted, policies=policies)))
        except GKMError as error:
            yield _unknown(image, error.message, error.hint or _REFUSED)


def _looked_at(references: Iterable[str], wanted: Verification) -> bool:
    """Return whether a policy is about one of the images; True for a name that cannot be parsed, which is a finding."""
    if wanted.mode == "off":
        return False
    try:
        refs = [Reference.parse(name) for name in references]
    except GKMError:
        return True
    return any(_is_about(policy, ref) for policy in wanted.policies for ref in refs)


def _judged(image: str, verdict: Verdict) -> Iterator[Finding]:
    if verdict.verified is None:
        yield _unknown(image, verdict.message, "run the command again when the registry answers")
    elif not verdict.verified:
        # The mode `warn` allows it.
        severity = Severity.WARNING if verdict.allowed else Severity.PROBLEM
        yield Finding(severity, image, "it is not signed as a policy requires", verdict.message, _REFUSED)


def _is_about(policy: Policy, ref: Reference) -> bool:
    named = [pattern for pattern in policy.images if "/" in pattern and pattern.rpartition("/")[2].strip("*?")]
    return covers(replace(policy, images=named), ref, NAMESPACE)


def _has_registry(name: str) -> bool:
    first, separator, _ = name.partition("/")
    return bool(separator) and (first == "localhost" or "." in first or ":" in first)


def _written(config: Config, text: Callable[[str], str], directory: Path) -> Mapping[str, str]:
    """Write the files that the configuration names and the ConfigMap has; return the new path by the one in pods."""
    found = {}
    paths = (*config.verification.files(), *(host.ca_file for host in config.registries.hosts.values()))
    for number, path in enumerate(dict.fromkeys(paths)):
        if path.startswith(MOUNT) and (content := text(path.removeprefix(MOUNT))):
            copy = directory / str(number)
            copy.write_text(content, encoding="utf-8")
            found[path] = str(copy)
    return found


def _verdict(config: Config, files: Mapping[str, str], ref: Reference, wanted: Verification) -> Verdict:
    registries = config.registries
    used = [registries.host(source).ca_file for source in registries.sources(ref.registry)]
    if absent := [path for path in (*wanted.files(), *used) if path and path not in files]:
        hint = f"verify it on a machine that has the file: gkm cache verify {ref} --config FILE"
        raise GKMError(
            Reason.SIGNATURE_INVALID,
            f"{_CONFIG} names {absent[0]} and does not hold it: doctor cannot verify the image, pods may have the file",
            hint,
        )
    policies = [
        replace(
            policy, keys=[files.get(key, key) for key in policy.keys], trusted_root=files.get(policy.trusted_root, "")
        )
        for policy in wanted.policies
    ]
    hosts = {name: replace(host, ca_file=files.get(host.ca_file, "")) for name, host in registries.hosts.items()}
    # `allow` restricts what users may name in caches.
    registry = Registry(Registries(hosts=hosts), credentials_from_environment())
    return Verifier(replace(wanted, policies=policies)).verify(registry, ref, NAMESPACE)


def _unknown(image: str, why: str, hint: str) -> Finding:
    return Finding(Severity.NOT_CHECKED, image, "the state of its signature is unknown", why, hint)
