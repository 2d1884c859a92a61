"""All checks of `gkm doctor`, in their order: causes before their effects (docs/reference/doctor.md)."""

from gkm_cli.doctor import images
from gkm_cli.doctor.domains import claims, cluster, compute_domains, readiness
from gkm_cli.doctor.domains.reading import ListCheck, ReadingCheck
from gkm_cli.doctor.installation import (
    caches,
    captures,
    configuration,
    controllers,
    daemons,
    group_objects,
    kinds,
    labeled_pods,
    nodes,
    webhook,
)
from gkm_cli.doctor.installation.observation import InstallationCheck
from gkm_cli.doctor.runner import Check

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
    InstallationCheck("csi/driver-missing", "the CSIDriver is there", daemons.driver_missing, ("driver",)),
    InstallationCheck("csi/driver-settings", "the CSIDriver has our settings", daemons.driver_settings, ("driver",)),
    InstallationCheck("csi/missing", "the DaemonSet gkm-csi is there", daemons.csi_missing, ("daemon_sets",)),
    InstallationCheck("csi/not-ready", "every gkm-csi is ready", daemons.csi_not_ready, ("daemon_sets", "pods")),
    InstallationCheck(
        "csi/not-registered", "every kubelet knows the driver", daemons.not_registered, ("csi_nodes", "pods")
    ),
    InstallationCheck("agent/missing", "the DaemonSet gkm-agent is there", daemons.agent_missing, ("daemon_sets",)),
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
        "caches/by-label",
        "every pod with the label of a cache was seen by the webhook",
        labeled_pods.unseen,
        ("labeled_pods",),
        cluster_wide=False,
    ),
    InstallationCheck(
        "groups/inactive",
        "every group template, pool and group has its feature",
        group_objects.inactive,
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
    ListCheck("domains/readiness", "no ComputeDomain reports a fault", readiness.findings, ("domains",)),
    ListCheck(
        "domains/claim-templates",
        "every claim template has its ComputeDomain",
        claims.templates,
        ("domains", "templates"),
    ),
    ListCheck(
        "domains/template-names",
        "no other claim template has the name of a domain's",
        claims.template_names,
        ("domains", "templates"),
    ),
    ListCheck(
        "domains/claims",
        "every allocated claim has its pod and its ComputeDomain",
        claims.claims,
        ("pods", "domains", "claims"),
    ),
    ListCheck(
        "domains/pods",
        "no pod waits for the claim template of a domain",
        claims.waiting_pods,
        ("pods", "domains", "templates"),
    ),
    ReadingCheck("domains/version", "the kind ComputeDomain has what GKM needs, or is not in use", cluster.version),
    ReadingCheck("domains/imex", "ComputeDomains are not installed", cluster.imex),
    ReadingCheck("domains/switch", "at most one of GKM and Grove makes ComputeDomains", cluster.switch),
    images.SignaturesCheck(),
)
