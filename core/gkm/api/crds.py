"""CustomResourceDefinitions of all kinds: names, printer columns and rules; gkm.api.schemas adds the fields."""

from dataclasses import dataclass

import msgspec

from gkm.api import caches, fabrics, nodes, plans, provider_trees, runs, schemas, task_groups
from gkm.api.meta import GROUP, VERSION
from gkm.api.schemas import Schema


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of GKM's API: its type, its names, the columns of `kubectl get` and the validation rules."""

    type: type[msgspec.Struct]
    plural: str
    short: str
    columns: tuple[Schema, ...]
    rules: tuple[Schema, ...]
    namespaced: bool = True


def _column(name: str, path: str, kind: str = "string", *, wide: bool = False) -> Schema:
    """Return a printer column; kubectl shows a `wide` one with -o wide."""
    column: Schema = {"name": name, "type": kind, "jsonPath": path}
    return column | {"priority": 1} if wide else column


_CACHE_COLUMNS = (
    _column("Ready", ".status.ready"),
    _column("Failed", ".status.failedNodes", "integer"),
    # The reason why Ready is not True: 0/0 alone does not show that nodeSelector matches no node.
    _column("Status", '.status.conditions[?(@.type=="Ready")].reason'),
    _column("Verified", '.status.conditions[?(@.type=="Verified")].reason'),
    _column("In-Use", ".status.podsUsing", "integer"),
    _column("Family", ".spec.family"),
    _column("Generation", ".spec.generation", "integer"),
    _column("Age", ".metadata.creationTimestamp", "date"),
    _column("Incompatible", ".status.incompatibleNodes", "integer", wide=True),
    _column("Digest", ".status.resolvedDigest", wide=True),
    _column("Image", ".spec.image", wide=True),
)
_NODE_COLUMNS = (
    _column("Node", ".spec.nodeName"),
    _column("Caches", f".metadata.annotations.{nodes.CURRENT_CACHES_ANNOTATION.replace('.', chr(92) + '.')}"),
    _column("GPUs", ".status.gpus[*].gpuType"),
    _column("Driver", ".status.gpus[0].driverVersion", wide=True),
    _column("Age", ".metadata.creationTimestamp", "date"),
)
_NODE_RULES: tuple[Schema, ...] = (
    {"rule": "self.spec.nodeName == oldSelf.spec.nodeName", "message": "spec.nodeName cannot change"},
)
_FABRIC_COLUMNS = (
    _column("Domain", ".status.domain"),
    _column("Health", ".status.health"),
    _column("IB", ".status.infinibandPorts"),
    _column("Age", ".metadata.creationTimestamp", "date"),
    _column("Message", ".status.message", wide=True),
)
_FABRIC_RULES: tuple[Schema, ...] = (
    {"rule": "self.spec.nodeName == self.metadata.name", "message": "spec.nodeName must be the name of the object"},
)
_TREE_COLUMNS = (
    _column("State", ".spec.state"),
    _column("Accepted", '.status.conditions[?(@.type=="Accepted")].reason'),
    _column("Revision", ".spec.revision", "integer"),
    _column("HyperNodes", ".spec.hypernodes", "integer"),
    _column("Nodes", ".spec.nodes", "integer"),
    # Strings, for a clock that is ahead makes an age of them `<invalid>`.
    _column("Observed", ".spec.observedTime"),
    _column("Heartbeat", ".spec.heartbeatTime"),
    _column("Reason", ".spec.reason", wide=True),
)
_RUN_COLUMNS = (
    _column("GPUs", ".spec.gpus", "integer"),
    _column("Planned", '.status.conditions[?(@.type=="Planned")].reason'),
    _column("Domains", ".status.domains", "integer"),
    _column("Plan", ".status.planRef.name"),
    _column("Age", ".metadata.creationTimestamp", "date"),
    _column("Flavor", ".spec.flavor", wide=True),
    _column("Message", '.status.conditions[?(@.type=="Planned")].message', wide=True),
)
_PLAN_COLUMNS = (
    _column("Run", ".spec.run"),
    _column("Live", '.status.conditions[?(@.type=="Live")].reason'),
    _column("GPUs", ".spec.gpus", "integer"),
    _column("Domains", ".spec.metrics.domains", "integer"),
    _column("Gap", ".spec.metrics.gap", "integer"),
    _column("Stranded", ".spec.metrics.strandedGPUs", "integer"),
    # A string, because kubectl shows a `date` as an age, and the age of a future time as `<invalid>`.
    _column("Expires", ".spec.expiresAt"),
    _column("Age", ".metadata.creationTimestamp", "date"),
    _column("Policy", ".spec.policy", wide=True),
    _column("Hash", ".spec.hash", wide=True),
)
_TEMPLATE_COLUMNS = (
    _column("Kind", ".spec.template.kind"),
    _column("Name", ".spec.template.metadata.name"),
    _column("Pools", ".status.pools", "integer"),
    _column("Age", ".metadata.creationTimestamp", "date"),
)
_POOL_COLUMNS = (
    _column("Templates", ".spec.commonGroupTemplates"),
    _column("Parsed", '.status.conditions[?(@.type=="Parsed")].reason'),
    _column("Age", ".metadata.creationTimestamp", "date"),
    _column("Message", '.status.conditions[?(@.type=="Parsed")].message', wide=True),
)
_GROUP_COLUMNS = (
    _column("Pool", ".spec.pool"),
    _column("Phase", ".status.phase"),
    _column("Created", '.status.conditions[?(@.type=="ObjectsCreated")].reason'),
    _column("NVLink", '.status.conditions[?(@.type=="MNNVLReady")].reason'),
    _column("Age", ".metadata.creationTimestamp", "date"),
    _column("Message", '.status.conditions[?(@.type=="ObjectsCreated")].message', wide=True),
)

KINDS = (
    Kind(caches.GKMCache, "gkmcaches", "gkmc", _CACHE_COLUMNS, caches.CACHE_RULES),
    Kind(caches.ClusterGKMCache, "clustergkmcaches", "cgkmc", _CACHE_COLUMNS, caches.CACHE_RULES, namespaced=False),
    Kind(nodes.GKMCacheNode, "gkmcachenodes", "gkmcn", _NODE_COLUMNS, _NODE_RULES),
    Kind(nodes.ClusterGKMCacheNode, "clustergkmcachenodes", "cgkmcn", _NODE_COLUMNS, _NODE_RULES, namespaced=False),
    Kind(fabrics.NodeFabric, "nodefabrics", "nf", _FABRIC_COLUMNS, _FABRIC_RULES, namespaced=False),
    Kind(provider_trees.ProviderTree, "providertrees", "gkmpt", _TREE_COLUMNS, (), namespaced=False),
    Kind(runs.Run, "runs", "gkmr", _RUN_COLUMNS, runs.RUN_RULES),
    Kind(plans.PlacementPlan, "placementplans", "gkmp", _PLAN_COLUMNS, plans.PLAN_RULES),
    Kind(task_groups.GroupTemplate, "grouptemplates", "gkmt", _TEMPLATE_COLUMNS, (), namespaced=False),
    Kind(task_groups.Pool, "pools", "gkmpool", _POOL_COLUMNS, (), namespaced=False),
    Kind(task_groups.TaskGroup, "taskgroups", "gkmtg", _GROUP_COLUMNS, task_groups.TASK_GROUP_RULES),
)


LABELS = {"app.kubernetes.io/part-of": "gkm"}
"""The labels of every definition: gkm.api.definition_origin recognizes earlier versions by them."""


def definitions() -> dict[str, Schema]:
    """Return the CustomResourceDefinition of every kind by file name."""
    return {f"{GROUP}_{kind.plural}.yaml": definition(kind) for kind in KINDS}


def definition(kind: Kind) -> Schema:
    """Return the CustomResourceDefinition of a kind."""
    name = kind.type.__name__
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}", "labels": dict(LABELS)},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": name,
                "listKind": f"{name}List",
                "plural": kind.plural,
                "singular": name.lower(),
                "shortNames": [kind.short],
                "categories": ["gkm"],
            },
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": list(kind.columns),
                    "schema": {"openAPIV3Schema": schemas.of_kind(kind.type, kind.rules)},
                }
            ],
        },
    }
