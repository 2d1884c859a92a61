"""Labels of clouds and of topograph that say where nodes are, by preset: `topology.presets` of the configuration. Pure.

The levels have the names that cables give them (leaf, spine, core), so that labels and surveys mean the same levels.
GKM reads a label as an NVLink domain only if it is a domain on every type of node: a capacity block of AWS is a
reservation, and a subblock of Google is an NVLink domain on some machines only. There `nvidia.com/gpu.clique` names it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, get_args

PresetName = Literal["eks", "gke", "oke", "coreweave", "topograph"]
PRESET_LEVELS = ("sub-leaf", "leaf", "spine", "core", "tier-4")
"""The levels of presets between `nvlink` and `cluster`, from the closest to the widest."""
OPTIONAL_LEVELS = frozenset({"sub-leaf", "core", "tier-4"})
"""Levels that some nodes of a family lack."""
NO_TOPOLOGY = "no-topology"
"""The value that topograph gives to nodes which it does not find: a placeholder."""

Keys = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LabelFamily:
    """Keys of Node labels of one preset: by level, and for NVLink domains, which come after the configured keys.

    `further` keys say where nodes are as well, and belong to no level.
    """

    levels: Mapping[str, Keys]
    domain: Keys = ()
    rack: Keys = ()
    further: Keys = ()

    @property
    def keys(self) -> Keys:
        """Return all label keys of the family, by level."""
        return (*chain(*self.levels.values()), *self.domain, *self.rack, *self.further)


FAMILIES: Mapping[str, LabelFamily] = {
    "eks": LabelFamily(
        {
            "sub-leaf": ("topology.k8s.aws/network-node-layer-4",),
            "leaf": ("topology.k8s.aws/network-node-layer-3",),
            "spine": ("topology.k8s.aws/network-node-layer-2",),
            "core": ("topology.k8s.aws/network-node-layer-1",),
        },
        domain=("topology.k8s.aws/ultraserver-id",),
    ),
    "gke": LabelFamily(
        {"leaf": ("cloud.google.com/gce-topology-subblock",), "spine": ("cloud.google.com/gce-topology-block",)},
        further=("cloud.google.com/gce-topology-host",),
    ),
    "oke": LabelFamily(
        {"leaf": ("oci.oraclecloud.com/host.rack_id",), "spine": ("oci.oraclecloud.com/host.network_block_id",)},
        rack=("oci.oraclecloud.com/host.rack_id",),
    ),
    "coreweave": LabelFamily(
        {
            "leaf": ("ib.coreweave.cloud/leafgroup", "backend.coreweave.cloud/leafgroup"),
            "spine": ("ib.coreweave.cloud/superpod", "backend.coreweave.cloud/superpod"),
            "core": ("ib.coreweave.cloud/fabric", "backend.coreweave.cloud/fabric"),
        },
        domain=("ds.coreweave.com/nvlink.domain",),
        further=("node.coreweave.cloud/rack",),
    ),
    "topograph": LabelFamily(
        {
            "leaf": ("fabric.topograph.run/tier-0", "network.topology.nvidia.com/leaf"),
            "spine": ("fabric.topograph.run/tier-1", "network.topology.nvidia.com/spine"),
            "core": ("fabric.topograph.run/tier-2", "network.topology.nvidia.com/core"),
            "tier-4": ("fabric.topograph.run/tier-3",),
        },
        domain=("accelerator.topograph.run/domain", "network.topology.nvidia.com/accelerator"),
    ),
    "crusoe": LabelFamily({}, further=("crusoe.ai/ib.partition.id", "crusoe.ai/pod.id")),
}
"""Every family that is known. Those that are no preset have no levels that are sure."""
HAS_PRESET = frozenset(get_args(PresetName))


@dataclass(frozen=True, slots=True)
class PresetKeys:
    """The keys of Node labels that presets add to the configured keys.

    By level, for the fabric domain, and for the planner's block and rack, which have keys besides those of the levels.
    """

    levels: Mapping[str, Keys] = field(default_factory=dict)
    domain: Keys = ()
    block: Keys = ()
    rack: Keys = ()

    @classmethod
    def of(cls, presets: Iterable[PresetName]) -> "PresetKeys":
        """Return the keys of presets in their order; the levels from the closest to the widest."""
        families = [FAMILIES[preset] for preset in presets]
        levels = {
            level: keys
            for level in PRESET_LEVELS
            if (keys := tuple(chain(*(family.levels.get(level, ()) for family in families))))
        }
        domain = tuple(chain(*(family.domain for family in families)))
        return cls(levels, domain, levels.get("spine", ()), tuple(chain(*(family.rack for family in families))))


def joined(keys: Iterable[str], more: Iterable[str]) -> list[str]:
    """Return the keys of both lists in order, without duplicates."""
    return list(dict.fromkeys([*keys, *more]))
