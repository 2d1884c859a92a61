"""The components and overlays of deploy/, each by the values of the chart that it stands for."""

from kustomizations.rendering import Component, Overlay

COMPONENTS = (
    Component(
        "pod-caches",
        """\
Volumes for pods that name a cache by a label (docs/how-to/caches-by-label.md). Pods prefer nodes where their cache is
ready if fabric.cacheLabels is set in the ConfigMap gkm-config. Name this component before `task-groups`, which gives
admission more memory. In a kustomization of your own:""",
        {"features": {"podCaches": True}},
    ),
    Component(
        "pod-gates",
        """\
Pods of Runs that request GPUs wait behind a scheduling gate, and start where the plan of their Run says
(docs/features/placement.md). Set packing.podGates in the ConfigMap gkm-config too. In a kustomization of your own:""",
        {"features": {"podGates": True}},
    ),
    Component(
        "domains",
        """\
ComputeDomains for workloads on multi-node NVLink (docs/features/computedomains.md). The component enrolls nothing by
itself: set network.autoMNNVLEnabled in the ConfigMap gkm-config for that. While PodCliqueSets are enrolled, leave it
installed, also with the switch off: it scales, protects and releases them. In a kustomization of your own:""",
        {"features": {"domains": True}},
    ),
    Component(
        "task-groups",
        """\
Group templates: Kubernetes objects that live exactly as long as a group of tasks (docs/features/group-templates.md).
Set taskGroups.enabled in the ConfigMap gkm-config too. For another taskGroups.allowedKinds than the default one, name
what `gkm template rights` prints in `patches`. Name this component after `domains`. In a kustomization of your own:""",
        {"features": {"taskGroups": True}},
    ),
    Component(
        "topology",
        """\
HyperNodes of Volcano, and the Topologies of Kueue and KAI (docs/features/topology.md). Kueue and KAI need labels on
Nodes as well: the component topology-labels. This one writes nothing by itself: set topology.hyperNodes.enabled,
topology.kueue or topology.kai in the ConfigMap gkm-config (deploy/samples/topology.yaml). What was written stays when a
switch is off again: kubectl delete hypernodes -l volcano.sh/network-topology-source=gkm
In a kustomization of your own:""",
        {"features": {"topology": True}},
    ),
    Component(
        "topology-infiniband",
        """\
The pod of the topology provider infiniband, which reads the surveys of ibnetdiscover (docs/reference/fabric.md). Name
this component after `topology`, and the provider in topology.providers of the ConfigMap gkm-config. For other
providers, take the chart. In a kustomization of your own:""",
        {"topology": {"providers": [{"name": "infiniband"}]}},
        after=("topology",),
        needs=("topology",),
    ),
    Component(
        "topology-labels",
        """\
The right to label Nodes with their levels (level.gkm.io/*), for Kueue and KAI. Name it beside the component topology,
and set topology.nodeLabels. What was written stays when the switch is off again; for each level:
kubectl label nodes --all level.gkm.io/<level>-
In a kustomization of your own:""",
        {"features": {"topologyLabels": True}},
    ),
    Component(
        "fabric-conditions",
        """\
The right to write the condition NVLinkFabricHealthy on Nodes (docs/reference/fabric.md). Set fabric.nodeConditions in
the ConfigMap gkm-config too. The conditions stay when the switch is off again. In a kustomization of your own:""",
        {"features": {"fabricConditions": True}},
    ),
    Component(
        "fabric-taints",
        """\
The right to taint Nodes whose NVLink fabric is unhealthy (docs/reference/fabric.md). Name it after fabric-conditions
and topology-labels, and set fabric.nodeTaint in the ConfigMap gkm-config too. The taints stay when the switch is off
again. In a kustomization of your own:""",
        {"features": {"fabricTaints": True}},
        after=("topology-labels",),
    ),
    Component(
        "topology-hygiene",
        """\
Warnings for labels of Nodes that GKM or a scheduler would misread (docs/how-to/labels.md). Nothing is refused: the
client gets a warning, and the audit log an annotation. In a kustomization of your own:""",
        {"features": {"topologyHygiene": True}},
    ),
    Component(
        "kserve",
        """\
GKMCaches of KServe's KernelCaches (docs/how-to/kserve.md). Set kserve.enabled in the ConfigMap gkm-config too. What was
made stays when the switch is off again, until its KernelCache is deleted. In a kustomization of your own:""",
        {"features": {"kserve": True}},
    ),
    Component(
        "pod-monitors",
        """\
PodMonitors of the Prometheus operator, whose kinds must be there. In a kustomization of your own:""",
        {"metrics": {"podMonitors": True}},
    ),
    Component(
        "alerts",
        """\
Alerts with runbooks (docs/runbooks) as a PrometheusRule of the Prometheus operator, whose kind must be there. Without
it: deploy/chart/gkm/files/alerts.yaml is a rules file of Prometheus. In a kustomization of your own:""",
        {"metrics": {"alerts": True}},
    ),
    Component(
        "dashboards",
        """\
The dashboard as a ConfigMap that Grafana's sidecar loads. In a kustomization of your own:""",
        {"metrics": {"dashboards": True}},
    ),
    Component(
        "network-policies",
        """\
Which connections reach our pods (docs/reference/chart.md). Replace 192.0.2.0/32 in the policy gkm-admission, an address
that exists nowhere, by those of your API servers: until then they cannot reach admission, and caches cannot be created.
In a kustomization of your own:""",
        {"networkPolicies": {"enabled": True, "apiServers": ["192.0.2.0/32"]}},
    ),
    Component(
        "cert-manager",
        """\
The webhook's certificate comes from cert-manager, and its pods need no right to write webhook configurations. Name this
component after all others: it replaces flags, and fills every caBundle. In a kustomization of your own:""",
        {"admission": {"certificates": "cert-manager"}},
        after=("domains", "task-groups", "pod-caches", "pod-gates"),
    ),
)
OVERLAYS = (
    Overlay("amd", "Nodes with AMD GPUs: kubectl apply --server-side -k deploy/overlays/amd"),
    Overlay(
        "single-node", "A cluster of one node, for a trial: kubectl apply --server-side -k deploy/overlays/single-node"
    ),
    Overlay("openshift", "OpenShift: oc apply --server-side -k deploy/overlays/openshift"),
)
