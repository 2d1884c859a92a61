"""The sections `topology` and `packing` of the configuration: labels that locate nodes, and settings of the planner."""

from collections import Counter
from itertools import chain
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, ValidationError, convert, field, structs
from msgspec.structs import astuple

from gkm.api.cliques import CLIQUE_LEVEL
from gkm.api.topology_presets import PresetKeys, PresetName, joined

# Kubernetes, "Labels and Selectors": an optional DNS subdomain and a slash, then a name of at most 63 characters.
_KEY = r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z"
_VALUE = r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z"
LONGEST_SECONDS = 7 * 86_400
PLANNED_LEVELS = (CLIQUE_LEVEL, "block", "cluster", "region")
"""The levels that Runs are planned with, from the closest to the widest; the default levels of the tree."""
AREAS = PLANNED_LEVELS[2:]
"""The levels at which a run can be kept in one area or spread over areas."""
LEVEL_LABELS = "level.gkm.io/"
"""The prefix of the labels that `topology.nodeLabels` writes."""

LabelKey = Annotated[str, Meta(max_length=317, pattern=_KEY)]
LabelKeys = Annotated[list[LabelKey], Meta(max_length=16)]
LabelValue = Annotated[str, Meta(max_length=63, pattern=_VALUE)]
# A level is the name of a label of Nodes, a tier name of HyperNodes and part of their names.
LevelName = Annotated[str, Meta(max_length=20, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?\Z")]
ProviderName = Annotated[str, Meta(max_length=63, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?\Z")]
ObjectName = Annotated[str, Meta(max_length=63, pattern=r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?)?\Z")]


def _keys(*keys: str) -> list[str]:
    return field(default_factory=lambda: list(keys))


class TopologyLabels(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Keys of the node labels for each property; GKM uses the first label that the node has.

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


class TopologyLevel(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A level of the tree of domains. Its name is the tier name of HyperNodes.

    The provider `labels` reads it from the first of `keys` that a node has; without keys, the levels nvlink, rack,
    block, cluster and region from the keys of `labels`. Names are unique in the cluster, or within their `parent` only.
    """

    name: LevelName
    keys: LabelKeys = field(default_factory=list)
    unique: Literal["cluster", "parent"] = "cluster"


def _default_levels() -> list[TopologyLevel]:
    return [TopologyLevel(name) for name in PLANNED_LEVELS]


class NoConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The empty `config` of a provider that has no settings."""


Globs = Annotated[list[Annotated[str, Meta(min_length=1, max_length=64)]], Meta(min_length=1, max_length=64)]


def _everything() -> list[str]:
    return field(default_factory=lambda: ["*"])


class CountedSwitches(Struct, frozen=True, kw_only=True):
    """Globs for names and ids of switches: cables to matching switches are used; `!` excludes."""

    switches: Globs = _everything()


class CountedAdapters(CountedSwitches, frozen=True, kw_only=True):
    """Globs for names of adapters whose cables are used."""

    adapters: Globs = _everything()


class InfinibandConfig(CountedAdapters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `config` of the provider `infiniband`: globs for adapters and switches whose cables are used."""


class LldpConfig(CountedSwitches, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `config` of the provider `lldp`: globs for interfaces and switches whose cables are used."""

    interfaces: Globs = _everything()


_CONFIGS: dict[str, type[NoConfig | CountedAdapters | LldpConfig]] = {
    "labels": NoConfig,
    "infiniband": InfinibandConfig,
    "ufm": CountedAdapters,
    "lldp": LldpConfig,
}
"""The settings type of each provider of GKM; the provider ufm validates its further keys itself."""


class TopologyProvider(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A source of HyperNodes: labels, or the provider whose pod has this name (`topology.providers` of the chart).

    `config` belongs to the provider. A provider without events for `stale_seconds` is restarted; 0 is never, and
    without a value the provider decides.
    """

    name: ProviderName
    config: Annotated[dict[Annotated[str, Meta(max_length=63)], Any], Meta(max_length=64)] = field(default_factory=dict)
    stale_seconds: Annotated[float, Meta(ge=0, le=LONGEST_SECONDS)] | None = None

    def __post_init__(self) -> None:
        """Refuse a `config` that does not fit one of GKM's providers."""
        try:
            convert(self.config, _CONFIGS.get(self.name, dict[str, Any]))
        except ValidationError as error:
            raise ValueError(f"the config of provider {self.name} is not valid: {error}") from None


class TopologyGuard(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """When a change that removes many nodes from their domains must be confirmed before it is applied.

    It is more than `percent` of the placed nodes and at least `minimum` of them. The same result in `rounds` rounds,
    `interval_seconds` apart, confirms it.
    """

    percent: Annotated[int, Meta(ge=0, le=100)] = 20
    minimum: Annotated[int, Meta(ge=1, le=1_000_000)] = 8
    rounds: Annotated[int, Meta(ge=1, le=1000)] = 5
    interval_seconds: Annotated[float, Meta(gt=0, le=LONGEST_SECONDS)] = 60.0


class HyperNodes(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Whether the controllers write HyperNodes for Volcano, and whether the names in them are hashed."""

    enabled: bool = False
    hash_names: bool = False


class Topology(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How nodes form domains. A node without a fabric domain is a domain of its `own`, or is in `quarantine`.

    `presets` add the labels of clouds and of topograph: keys to `labels`, and the levels leaf, spine and so on in place
    of `block`, unless `levels` are given. `levels` are the levels of the tree, from the closest to the widest;
    `providers` come with the most trusted first, and measuring providers precede the others. `kueue` and `kai` name the
    Topology to write; an empty name writes no Topology. `node_labels` writes the levels on Nodes. Both need it: a
    Topology whose labels no node has admits no pods.
    """

    labels: TopologyLabels = field(default_factory=TopologyLabels)
    defaults: TopologyDefaults = field(default_factory=TopologyDefaults)
    missing_fabric: Literal["own", "quarantine"] = "own"
    presets: Annotated[list[PresetName], Meta(max_length=8)] = field(default_factory=list)
    levels: Annotated[list[TopologyLevel], Meta(min_length=1, max_length=14)] = field(default_factory=_default_levels)
    providers: Annotated[list[TopologyProvider], Meta(max_length=16)] = field(
        default_factory=lambda: [TopologyProvider("labels")]
    )
    guard: TopologyGuard = field(default_factory=TopologyGuard)
    hyper_nodes: HyperNodes = field(default_factory=HyperNodes)
    kueue: ObjectName = ""
    kai: ObjectName = ""
    node_labels: bool = False

    def __post_init__(self) -> None:
        """Refuse duplicate levels or providers, GKM's own labels as a source, and a Topology without node labels."""
        for what, names in (
            ("levels", [level.name for level in self.levels]),
            ("providers", [provider.name for provider in self.providers]),
        ):
            if repeated := [name for name, count in Counter(names).items() if count > 1]:
                raise ValueError(f"two of the {what} have the name {min(repeated)!r}")
        for key in chain(*astuple(self.labels), *(level.keys for level in self.levels)):
            # Each tree would make new values of the values of the last one.
            if key.startswith(LEVEL_LABELS):
                raise ValueError(f"{key!r} cannot be a source: topology.nodeLabels writes the labels {LEVEL_LABELS}")
        for what, name in (("kueue", self.kueue), ("kai", self.kai)):
            if name and not self.node_labels:
                raise ValueError(f"{what} needs nodeLabels: true, or no node has the labels of its Topology")
        if self.presets:
            self._expand()

    def _expand(self) -> None:
        """Add the keys and levels of the presets; a second call has no effect."""
        preset, labels = self.preset_keys, self.labels
        more = {"domain": preset.domain, "block": preset.block, "rack": preset.rack}
        expanded = {name: joined(getattr(labels, name), keys) for name, keys in more.items()}
        structs.force_setattr(self, "labels", structs.replace(labels, **expanded))
        if not self.has_own_levels:
            closest, _, *wider = self.levels
            levels = [TopologyLevel(name) for name in preset.levels]
            structs.force_setattr(self, "levels", [closest, *levels, *wider])

    @property
    def makes_tree(self) -> bool:
        """Return whether the controllers make a tree of all providers; without it, labels alone place nodes."""
        return bool(self.hyper_nodes.enabled or self.kueue or self.kai or self.node_labels)

    @property
    def preset_keys(self) -> PresetKeys:
        """Return the label keys that the configured presets add."""
        return PresetKeys.of(self.presets)

    @property
    def has_own_levels(self) -> bool:
        """Return whether the configured levels differ from the default levels."""
        return self.levels != _default_levels()

    def counted(self, name: str) -> tuple[list[str], list[str]]:
        """Return the configured globs of a provider, for adapters or interfaces, and for switches.

        The defaults if absent.
        """
        found = (provider.config for provider in self.providers if provider.name == name)
        config = convert(next(found, {}), _CONFIGS[name])
        adapters = config.adapters if isinstance(config, CountedAdapters) else []
        interfaces = config.interfaces if isinstance(config, LldpConfig) else []
        return [*adapters, *interfaces], config.switches if isinstance(config, CountedSwitches) else []


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
    """The section `packing` of the configuration: defaults for the planning of Runs.

    The GPUs of a plan are in use for `plan_ttl` seconds, or until its pods run. While runs of other namespaces wait,
    the plans of one namespace hold at most `namespace_share` percent of the GPUs of a flavor without pods. `mix` is the
    expected mix of groups; it decides which free GPUs are usable (docs/reference/calculus.md, Fragmentation).
    `flavors` lists flavors of future nodes: a run may name a flavor that no node has yet. With `pod_gates`, gated pods
    of runs start where the plan says. If a pod has no place `pod_gate_wait` seconds after its creation, `onNoPlan` of
    its Run decides.
    """

    policy: Literal["fewest-domains", "fewest-blocks", "least-waste"] = "fewest-domains"
    plan_ttl: Annotated[float, Meta(gt=0, le=LONGEST_SECONDS)] = field(default=900.0, name="planTTL")
    namespace_share: Annotated[int, Meta(ge=1, le=100)] = 50
    mix: Annotated[list[MixGroup], Meta(min_length=1, max_length=32)] = field(default_factory=_default_mix)
    flavors: Annotated[list[LabelValue], Meta(max_length=64)] = field(default_factory=list)
    pod_gates: bool = False
    pod_gate_wait: Annotated[float, Meta(gt=0, le=LONGEST_SECONDS)] = 600.0
