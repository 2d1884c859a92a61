"""The objects of support.grove.objects as the values that the rules of ComputeDomains read."""

from collections.abc import Mapping
from typing import Any

import msgspec
from gkm.api.computedomains import CHANNEL_CLASS, ComputeDomain
from gkm.api.grove import PodClique, PodCliqueSet
from gkm.api.mnnvl_metadata import MNNVL_GROUP, PART_OF, REPLICA_INDEX, SCALING_GROUP, SCALING_GROUP_INDEX
from gkm.api.network_settings import Network
from gkm.api.pod_specs import PodClaim, PodSpec
from gkm_operator.mnnvl.gpu_requests import GPURequests
from support.grove.objects import NAMESPACE, Json, compute_domain, pod_clique_set

GPUS = GPURequests(Network())
"""The rule of the default configuration."""
CLASSES = {"gpu-template": "gpu.nvidia.com", "channel-template": CHANNEL_CLASS, "nic-template": "nic.example"}
"""The device classes of claim templates."""


def device_classes(claim: PodClaim) -> tuple[str, ...]:
    """Return the classes of the known templates."""
    return tuple(CLASSES[name] for name in (claim.resource_claim_template_name,) if name in CLASSES)


def a_set(*cliques: Json, name: str = "test-pcs", **fields: Any) -> PodCliqueSet:  # noqa: ANN401 -- the builder's
    """A PodCliqueSet; the arguments are those of pod_clique_set."""
    return msgspec.convert(pod_clique_set(name, *cliques, **fields), PodCliqueSet)


def a_pod_spec(**fields: Any) -> PodSpec:  # noqa: ANN401 -- JSON
    """A pod specification with these fields."""
    return msgspec.convert(fields, PodSpec)


def a_pod_clique(part_of: str, replica: str, clique: str, scaling_group: str = "") -> PodClique:
    """A PodClique as Grove names and labels it: standalone, or that of the first replica of a scaling group."""
    name, labels = f"{part_of}-{replica}-{clique}", {PART_OF: part_of, REPLICA_INDEX: replica}
    if scaling_group:
        full = f"{part_of}-{replica}-{scaling_group}"
        name, labels = f"{full}-0-{clique}", labels | {SCALING_GROUP: full, SCALING_GROUP_INDEX: "0"}
    return labeled_pod_clique(name, labels)


def labeled_pod_clique(name: str, labels: Mapping[str, str]) -> PodClique:
    """A PodClique with any name and labels."""
    return msgspec.convert({"metadata": {"name": name, "namespace": NAMESPACE, "labels": dict(labels)}}, PodClique)


def a_compute_domain(name: str, replica: str = "0", group: str = "", **metadata: str) -> ComputeDomain:
    """A ComputeDomain with the labels of a replica and a group; `metadata` holds further fields."""
    labels = {REPLICA_INDEX: replica} | ({MNNVL_GROUP: group} if group else {})
    made = compute_domain(name, labels=labels)
    return msgspec.convert(made | {"metadata": made["metadata"] | metadata}, ComputeDomain)
