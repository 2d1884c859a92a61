"""ComputeDomains, claim templates, pods, PodCliques and nodes as NVIDIA's driver, users and kubelet leave them."""

import json
from typing import Any, TypeVar

import msgspec
from gkm.api.computedomains import CHANNEL_CLASS, ComputeDomain
from gkm.api.resource_claims import ResourceClaimTemplate
from gkm.api.topology_settings import Topology
from gkm.topology.nodes import Node
from gkm_operator.computedomains.capacity import FabricNode, fabric_node
from gkm_operator.computedomains.status.observer import ClaimingClique
from gkm_operator.pods import WatchedPod
from support.grove.objects import NAMESPACE, claim_template, compute_domain
from support.grove.pods import pod

Json = dict[str, Any]
T = TypeVar("T")
UID = "uid-of-the-domain"
NAME = "training"
CREATED = "2026-01-01T00:00:00Z"
CLIQUE = "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.1"


def read(kind: type[T], value: Json) -> T:
    """An object as the reflector decodes it."""
    return msgspec.json.decode(json.dumps(value), type=kind)


def domain_json(name: str = NAME, *nodes: Json, uid: str = UID, created: str = CREATED, **metadata: Any) -> Json:  # noqa: ANN401 -- JSON
    """A ComputeDomain whose claim template has its name; NVIDIA's controller calls it Ready from birth."""
    made = compute_domain(name)
    made["metadata"] |= {"uid": uid, "creationTimestamp": created, **metadata}
    return made | {"status": {"status": "Ready", "nodes": list(nodes)}}


def domain(name: str = NAME, *nodes: Json, **fields: Any) -> ComputeDomain:  # noqa: ANN401 -- JSON
    return read(ComputeDomain, domain_json(name, *nodes, **fields))


def joined(name: str, status: str = "Ready", clique: str = CLIQUE, index: int = 0) -> Json:
    """A node of the status of a ComputeDomain."""
    return {"name": name, "ipAddress": "10.0.0.1", "cliqueID": clique, "index": index, "status": status}


def template_json(name: str = NAME, uid: str = UID) -> Json:
    """The claim template that NVIDIA's controller makes for the domain with a uid; "" for one of anyone else."""
    label = {"resource.nvidia.com/computeDomain": uid} if uid else {}
    return claim_template(name, CHANNEL_CLASS, labels=label)


def template(name: str = NAME, uid: str = UID) -> ResourceClaimTemplate:
    return read(ResourceClaimTemplate, template_json(name, uid))


def user(name: str, node: str = "", **fields: Any) -> WatchedPod:  # noqa: ANN401 -- JSON
    """A pod that uses the claim template of the domain."""
    return read(WatchedPod, pod(name, node=node, **({"template": NAME} | fields)))


def clique_json(name: str, replicas: int | None, template_name: str = NAME) -> Json:
    """A PodClique whose pods use a claim template."""
    claims = [{"name": "mnnvl-claim", "resourceClaimTemplateName": template_name}]
    spec: Json = {"roleName": name, "podSpec": {"resourceClaims": claims}}
    metadata = {"name": name, "namespace": NAMESPACE}
    spec |= {} if replicas is None else {"replicas": replicas}
    return {"apiVersion": "grove.io/v1alpha1", "kind": "PodClique", "metadata": metadata, "spec": spec}


def clique(name: str, replicas: int | None, template_name: str = NAME) -> ClaimingClique:
    return read(ClaimingClique, clique_json(name, replicas, template_name))


def node_json(
    name: str,
    clique_id: str = CLIQUE,
    gpus: int | str | None = 4,
    *,
    held_by: str = "",
    ready: bool = True,
    cordoned: bool = False,
    **labels: str,
) -> Json:
    """A node with GPUs; `labels` have `__` for a dot and `___` for a slash."""
    given = {key.replace("___", "/").replace("__", "."): value for key, value in labels.items()}
    given |= {"nvidia.com/gpu.product": "NVIDIA-GB200"}
    given |= {"nvidia.com/gpu.clique": clique_id} if clique_id else {}
    given |= {"resource.nvidia.com/computeDomain": held_by} if held_by else {}
    allocatable = {"cpu": "64"} | ({} if gpus is None else {"nvidia.com/gpu": str(gpus)})
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    spec = {"unschedulable": True} if cordoned else {}
    status = {"allocatable": allocatable, "conditions": conditions}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": given},
        "spec": spec,
        "status": status,
    }


def node(name: str, clique_id: str = CLIQUE, gpus: int | str | None = 4, **fields: Any) -> FabricNode:  # noqa: ANN401
    return fabric_node(read(Node, node_json(name, clique_id, gpus, **fields)), Topology())
