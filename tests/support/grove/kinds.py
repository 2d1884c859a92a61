"""CustomResourceDefinitions of Grove's kinds and of ComputeDomain, for tests: the shape of the real ones, in our words.

The fields and rules are those of grove.io/v1alpha1 and resource.nvidia.com/v1beta1 (releases v0.4.x). A pod
specification is preserved as it is; the real definitions check it in full. tests/partners/domains runs with those of
NVIDIA.
"""

from typing import Any

Json = dict[str, Any]

ANYTHING: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_NAME: Json = {"type": "string", "minLength": 1, "maxLength": 253}
_COUNT: Json = {"type": "integer", "format": "int32", "minimum": 0}
_WORDS: Json = {"type": "object", "additionalProperties": {"type": "string"}}


def _object(required: tuple[str, ...] = (), **properties: Json) -> Json:
    return {"type": "object", "properties": properties} | ({"required": list(required)} if required else {})


def _list(items: Json, key: str = "") -> Json:
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]} if key else {}
    return {"type": "array", "items": items} | keyed


_CLIQUE_SPEC = _object(
    ("podSpec", "replicas", "roleName"),
    roleName=_NAME,
    podSpec=ANYTHING,
    replicas=_COUNT,
    minAvailable=_COUNT,
    startsAfter=_list(_NAME),
    autoScalingConfig=ANYTHING,
)
_SHARING = _list(_object(("name", "scope"), name=_NAME, namespace=_NAME, scope={"type": "string"}, filter=ANYTHING))
_CLIQUE = _object(
    ("name", "spec"),
    name=_NAME,
    labels=_WORDS,
    annotations=_WORDS,
    spec=_CLIQUE_SPEC,
    topologyConstraint=ANYTHING,
    resourceSharing=_SHARING,
)
_SCALING_GROUP = _object(
    ("cliqueNames", "name"),
    name=_NAME,
    cliqueNames=_list(_NAME),
    annotations=_WORDS,
    replicas=_COUNT | {"default": 1},
    minAvailable=_COUNT | {"default": 1},
    scaleConfig=ANYTHING,
    resourceSharing=_SHARING,
)
_TEMPLATE = _object(
    ("cliques",),
    cliques=_list(_CLIQUE, "name"),
    podCliqueScalingGroups=_list(_SCALING_GROUP, "name"),
    cliqueStartupType={"type": "string", "default": "CliqueStartupTypeAnyOrder"},
    terminationDelay={"type": "string"},
    priorityClassName={"type": "string"},
    headlessServiceConfig=ANYTHING,
    resourceClaimTemplates=_list(_object(("name",), name=_NAME, templateSpec=ANYTHING)),
    resourceSharing=_SHARING,
)
_SET_SPEC = _object(("template",), replicas=_COUNT | {"default": 0}, updateStrategy=ANYTHING, template=_TEMPLATE)
_GROUP_SPEC = _object(("cliqueNames", "replicas"), replicas=_COUNT, minAvailable=_COUNT, cliqueNames=_list(_NAME))

_DOMAIN_SPEC = _object(
    ("channel",),
    numNodes={"type": "integer", "minimum": 0, "default": 0},
    channel=_object(
        ("resourceClaimTemplate",),
        resourceClaimTemplate=_object(("name",), name={"type": "string", "minLength": 1}),
        allocationMode={"type": "string", "enum": ["All", "Single"], "default": "Single"},
    ),
) | {"x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "A computeDomain.spec is immutable"}]}
_DOMAIN_NODE = _object(
    ("cliqueID", "ipAddress", "name"),
    name={"type": "string"},
    ipAddress={"type": "string"},
    cliqueID={"type": "string"},
    index={"type": "integer"},
    status={"type": "string", "enum": ["Ready", "NotReady"], "default": "NotReady"},
)
_DOMAIN_STATUS = _object(
    ("status",),
    status={"type": "string", "enum": ["Ready", "NotReady"], "default": "NotReady"},
    nodes=_list(_DOMAIN_NODE, "name"),
)


def _definition(group: str, version: str, kind: str, short: str, schema: dict[str, Json], *, scale: bool) -> Json:
    plural = f"{kind.lower()}s"
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": names | ({"shortNames": [short]} if short else {}),
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": schema}},
                    "subresources": {"status": {}} | ({"scale": paths} if scale else {}),
                }
            ],
        },
    }


_META: Json = {"type": "object"}
_GROVE = "grove.io", "v1alpha1"

GROVE: list[Json] = [
    _definition(*_GROVE, "PodCliqueSet", "pcs", {"metadata": _META, "spec": _SET_SPEC, "status": ANYTHING}, scale=True),
    _definition(
        *_GROVE, "PodClique", "pclq", {"metadata": _META, "spec": _CLIQUE_SPEC, "status": ANYTHING}, scale=True
    ),
    _definition(
        *_GROVE,
        "PodCliqueScalingGroup",
        "pcsg",
        {"metadata": _META, "spec": _GROUP_SPEC, "status": ANYTHING},
        scale=True,
    ),
]
COMPUTE_DOMAIN: Json = _definition(
    "resource.nvidia.com",
    "v1beta1",
    "ComputeDomain",
    "",
    {"metadata": _META, "spec": _DOMAIN_SPEC, "status": _DOMAIN_STATUS},
    scale=False,
)
ALL: list[Json] = [*GROVE, COMPUTE_DOMAIN]
