"""CustomResourceDefinitions of all kinds: names, printer columns and rules; gkm.api.schemas adds the fields."""

from dataclasses import dataclass, field

import msgspec

from gkm.api import caches, fabrics, nodes, plans, runs, schemas
from gkm.api.meta import GROUP, VERSION
from gkm.api.schemas import Schema


@dataclass(frozen=True, slots=True)
class Column:
    """A printer column; kubectl shows a `wide` one with -o wide."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind: its type, its names and the columns of `kubectl get`."""

    type: type[msgspec.Struct]
    plural: str
    short: str
    namespaced: bool
    columns: tuple[Column, ...]
    rules: tuple[Schema, ...] = field(default=())


_CACHE_COLUMNS = (
    Column("Ready", ".status.ready"),
    Column("Failed", ".status.failedNodes", "integer"),
    # The reason why Ready is not True: 0/0 alone does not show that nodeSelector matches no node.
    Column("Status", '.status.conditions[?(@.type=="Ready")].reason'),
    Column("Verified", '.status.conditions[?(@.type=="Verified")].reason'),
    Column("In-Use", ".status.podsUsing", "integer"),
    Column("Age", ".metadata.creationTimestamp", "date"),
    Column("Digest", ".status.resolvedDigest", wide=True),
    Column("Image", ".spec.image", wide=True),
)
_NODE_COLUMNS = (
    Column("Node", ".spec.nodeName"),
    Column("Caches", f".metadata.annotations.{nodes.CURRENT_CACHES_ANNOTATION.replace('.', chr(92) + '.')}"),
    Column("GPUs", ".status.gpus[*].gpuType"),
    Column("Driver", ".status.gpus[0].driverVersion", wide=True),
    Column("Age", ".metadata.creationTimestamp", "date"),
)
_NODE_RULES: tuple[Schema, ...] = (
    {"rule": "self.spec.nodeName == oldSelf.spec.nodeName", "message": "spec.nodeName cannot change"},
)
_FABRIC_COLUMNS = (
    Column("Domain", ".status.domain"),
    Column("Health", ".status.health"),
    Column("IB", ".status.infinibandPorts"),
    Column("Age", ".metadata.creationTimestamp", "date"),
    Column("Message", ".status.message", wide=True),
)
_FABRIC_RULES: tuple[Schema, ...] = (
    {"rule": "self.spec.nodeName == self.metadata.name", "message": "spec.nodeName must be the name of the object"},
)
_RUN_COLUMNS = (
    Column("GPUs", ".spec.gpus", "integer"),
    Column("Planned", '.status.conditions[?(@.type=="Planned")].reason'),
    Column("Domains", ".status.domains", "integer"),
    Column("Plan", ".status.planRef.name"),
    Column("Age", ".metadata.creationTimestamp", "date"),
    Column("Flavor", ".spec.flavor", wide=True),
    Column("Message", '.status.conditions[?(@.type=="Planned")].message', wide=True),
)
_PLAN_COLUMNS = (
    Column("Run", ".spec.run"),
    Column("Live", '.status.conditions[?(@.type=="Live")].reason'),
    Column("GPUs", ".spec.gpus", "integer"),
    Column("Domains", ".spec.metrics.domains", "integer"),
    Column("Gap", ".spec.metrics.gap", "integer"),
    Column("Stranded", ".spec.metrics.strandedGPUs", "integer"),
    # A string, because kubectl shows a `date` as an age, and the age of a future time as `<invalid>`.
    Column("Expires", ".spec.expiresAt"),
    Column("Age", ".metadata.creationTimestamp", "date"),
    Column("Policy", ".spec.policy", wide=True),
    Column("Hash", ".spec.hash", wide=True),
)

KINDS = (
    Kind(caches.GKMCache, "gkmcaches", "gkmc", namespaced=True, columns=_CACHE_COLUMNS, rules=caches.CACHE_RULES),
    Kind(
        caches.ClusterGKMCache,
        "clustergkmcaches",
        "cgkmc",
        namespaced=False,
        columns=_CACHE_COLUMNS,
        rules=caches.CACHE_RULES,
    ),
    Kind(nodes.GKMCacheNode, "gkmcachenodes", "gkmcn", namespaced=True, columns=_NODE_COLUMNS, rules=_NODE_RULES),
    Kind(
        nodes.ClusterGKMCacheNode,
        "clustergkmcachenodes",
        "cgkmcn",
        namespaced=False,
        columns=_NODE_COLUMNS,
        rules=_NODE_RULES,
    ),
    Kind(fabrics.NodeFabric, "nodefabrics", "nf", namespaced=False, columns=_FABRIC_COLUMNS, rules=_FABRIC_RULES),
    Kind(runs.Run, "runs", "gkmr", namespaced=True, columns=_RUN_COLUMNS, rules=runs.RUN_RULES),
    Kind(plans.PlacementPlan, "placementplans", "gkmp", namespaced=True, columns=_PLAN_COLUMNS, rules=plans.PLAN_RULES),
)


def definitions() -> dict[str, Schema]:
    """Return {file name: CustomResourceDefinition} of every kind."""
    return {f"{GROUP}_{kind.plural}.yaml": definition(kind) for kind in KINDS}


def definition(kind: Kind) -> Schema:
    """Return the CustomResourceDefinition of a kind."""
    name = kind.type.__name__
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
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
                    "additionalPrinterColumns": [_column(column) for column in kind.columns],
                    "schema": {"openAPIV3Schema": schemas.of_kind(kind.type, kind.rules)},
                }
            ],
        },
    }


def _column(column: Column) -> Schema:
    shown: Schema = {"name": column.name, "type": column.type, "jsonPath": column.path}
    return shown | {"priority": 1} if column.wide else shown
