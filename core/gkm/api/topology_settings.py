"""The sections `topology` and `packing` of the configuration: labels that locate nodes, and settings of the planner."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

# Kubernetes, "Labels and Selectors": an optional DNS subdomain and a slash, then a name of at most 63 characters.
_KEY = r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z"
_VALUE = r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z"
LONGEST_SECONDS = 7 * 86_400

LabelKey = Annotated[str, Meta(max_length=317, pattern=_KEY)]
LabelKeys = Annotated[list[LabelKey], Meta(max_length=16)]
LabelValue = Annotated[str, Meta(max_length=63, pattern=_VALUE)]


def _keys(*keys: str) -> list[str]:
    return field(default_factory=lambda: list(keys))


class TopologyLabels(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Keys of the node labels for each property; the first label that the node has counts.

    An empty list disables a property. `domain` is the fabric domain. A node whose `health` is `unhealthy` gets no new
    groups.
    """

    region: LabelKeys = _keys("region", "topology.kubernetes.io/region")
    cluster: LabelKeys = _keys("cluster")
    domain: LabelKeys = _keys("fabric.domain", "gkm.io/fabric-domain", "nvidia.com/gpu.clique")
    block: LabelKeys = _keys("block", "topology.gkm.io/block")
    rack: LabelKeys = _keys("rack", "topology.kubernetes.io/rack")
    flavor: LabelKeys = _keys("gpu.flavor", "gkm.io/gpu-flavor", "nvidia.com/gpu.product")
    health: LabelKeys = _keys("gkm.io/fabric-health")


class TopologyDefaults(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Region and cluster of a node without such labels."""

    region: LabelValue = "default"
    cluster: LabelValue = "default"


class Topology(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How nodes form domains. A node without a fabric domain is a domain of its `own`, or is in `quarantine`."""

    labels: TopologyLabels = field(default_factory=TopologyLabels)
    defaults: TopologyDefaults = field(default_factory=TopologyDefaults)
    missing_fabric: Literal["own", "quarantine"] = "own"


class MixGroup(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Groups of `gpus` GPUs in pods of `gpus_per_pod`; `weight` is their share of all requested groups."""

    gpus: Annotated[int, Meta(ge=1, le=10**9)]
    gpus_per_pod: Annotated[int, Meta(ge=1, le=10**9)]
    weight: Annotated[int, Meta(ge=1, le=10**6)] = 1

    def __post_init__(self) -> None:
        """Refuse a group that is not a whole number of pods."""
        if self.gpus % self.gpus_per_pod:
            raise ValueError(f"a group of {self.gpus} GPUs does not divide into pods of {self.gpus_per_pod}")


def _default_mix() -> list[MixGroup]:
    """Return the groups of bench/packing_stream_runs.py, in pods that fit nodes of 4 and of 8 GPUs."""
    sizes = ((4, 40), (8, 14), (16, 44), (32, 17), (64, 24), (72, 2))
    return [MixGroup(gpus, 4, weight) for gpus, weight in sizes]


class Packing(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Defaults for the planning of runs.

    The GPUs of a plan count as used for `plan_ttl` seconds, or until its pods run. `mix` is the expected mix of groups;
    it decides which free GPUs count as usable (docs/design/calculus.md, Fragmentation). `flavors` lists flavors of
    future nodes: a run may name one that no node has yet.
    """

    policy: Literal["fewest-domains", "fewest-blocks", "least-waste"] = "fewest-domains"
    plan_ttl: Annotated[float, Meta(gt=0, le=LONGEST_SECONDS)] = field(default=900.0, name="planTTL")
    mix: Annotated[list[MixGroup], Meta(min_length=1, max_length=32)] = field(default_factory=_default_mix)
    flavors: Annotated[list[LabelValue], Meta(max_length=64)] = field(default_factory=list)
