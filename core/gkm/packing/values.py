"""Inputs, results and errors of the planner, as frozen dataclasses without logic."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import lcm
from typing import NamedTuple

from gkm.api.plans import PlanMetrics
from gkm.topology.locations import Location

__all__ = ("Location",)
"""Only names defined in this module are public."""


class TooLargeError(ValueError):
    """The planner cannot solve a problem of this size; the message has the sizes and what to change."""


class Policy(StrEnum):
    """The policy of a plan: which costs are compared first (docs/reference/calculus.md)."""

    FEWEST_DOMAINS = "fewest-domains"
    FEWEST_BLOCKS = "fewest-blocks"
    LEAST_WASTE = "least-waste"


class CostPart(StrEnum):
    """One part of the cost of a plan (calculus.md, Objective)."""

    SPARES_ELSEWHERE = "spares"
    DOMAINS = "domains"
    BLOCKS = "blocks"
    CLUSTERS = "clusters"
    REGIONS = "regions"
    STRANDED = "gpus"


_FIRST = {
    Policy.FEWEST_DOMAINS: (CostPart.DOMAINS, CostPart.REGIONS, CostPart.CLUSTERS, CostPart.STRANDED, CostPart.BLOCKS),
    Policy.FEWEST_BLOCKS: (CostPart.BLOCKS, CostPart.REGIONS, CostPart.CLUSTERS, CostPart.DOMAINS, CostPart.STRANDED),
    Policy.LEAST_WASTE: (CostPart.STRANDED, CostPart.REGIONS, CostPart.CLUSTERS, CostPart.DOMAINS, CostPart.BLOCKS),
}
ORDERS = {policy: (CostPart.SPARES_ELSEWHERE, *parts) for policy, parts in _FIRST.items()}
"""For each policy, the parts of the cost in the order in which plans are compared."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node that a run may use: healthy, schedulable and of its flavor. `total` and `free` are whole GPUs.

    `scopes` are the names of the request's scopes that take it; empty for a request without scopes. `rack` is unique in
    its cluster, and empty if it is not known.
    """

    name: str
    place: Location
    total: int
    free: int
    scopes: frozenset[str] = frozenset()
    rack: str = ""


class Within(StrEnum):
    """The level of the single area that a whole run must stay in, spares included."""

    BLOCK = "block"
    CLUSTER = "cluster"
    REGION = "region"


MAX_GPUS = 10**9
"""Limit of GPUs of a request: a thousand times the largest cluster, so that sums cannot overflow."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The largest number of GPUs that a run may use in a scope, spares included."""

    scope: str
    gpus: int

    def __post_init__(self) -> None:
        if not 0 <= self.gpus <= MAX_GPUS:
            raise ValueError(f"scope {self.scope!r} gives {self.gpus} GPUs: 0 to {MAX_GPUS} are possible")


@dataclass(frozen=True, slots=True)
class Malleability:
    """Permission to reduce a run by multiples of `step_gpus`, down to `min_gpus`."""

    step_gpus: int
    min_gpus: int

    def __post_init__(self) -> None:
        if not (1 <= self.step_gpus <= MAX_GPUS and 1 <= self.min_gpus <= MAX_GPUS):
            raise ValueError(f"a malleable run has steps and a smallest size of 1 to {MAX_GPUS} GPUs")


class Level(StrEnum):
    """The first level of the topology that prevents a run from fitting.

    REGION, CLUSTER, BLOCK and RACK: all nodes of the flavor are quarantined, since their labels contradict each other
    there; or the run fits, but not within one such area, or not with its rule for each such area, as for DOMAIN.
    BALANCE: it fits, but not with equal shares of all domains.
    """

    FLAVOR = "flavor"
    REGION = "region"
    CLUSTER = "cluster"
    BLOCK = "block"
    RACK = "rack"
    SELECTOR = "selector"
    SCOPE = "scope"
    NODE = "node"
    DOMAIN = "domain"
    BALANCE = "balance"
    CAPACITY = "capacity"


AREAS = (Level.DOMAIN, Level.RACK, Level.BLOCK, Level.CLUSTER, Level.REGION)
"""The levels for which a run can have rules, from the closest to the widest."""
LAYERS = AREAS[2:]
"""The levels whose areas can require multiples of groups, in the order by which domains are sorted."""


@dataclass(frozen=True, slots=True)
class AreaRule:
    """A rule for each area of a level: limits of groups and of nodes that the run uses there, spares included.

    With `multiple` above 1 every so many groups, by number, lie in one such area: groups of groups.
    """

    level: Level
    max_groups: int | None = None
    max_nodes: int | None = None
    multiple: int = 1

    def __post_init__(self) -> None:
        if self.level not in AREAS:
            raise ValueError(f"{self.level} is no level of areas: {', '.join(AREAS)}")
        numbers = [self.multiple, *(most for most in (self.max_groups, self.max_nodes) if most is not None)]
        if not all(1 <= number <= MAX_GPUS for number in numbers):
            raise ValueError(f"a rule for each {self.level} has numbers of 1 to {MAX_GPUS}")
        if self.multiple > 1 and self.level not in LAYERS:
            raise ValueError(f"groups come in multiples in each {', '.join(LAYERS[:-1])} or {LAYERS[-1]} only")


@dataclass(frozen=True, slots=True)
class Request:
    """The request of a run: `gpus` in groups of `group_gpus` (the last may be smaller), in pods of `pod_gpus`.

    `spares` are pods a group. `may_spread` allows groups in several domains, all of them `within` one area if it is
    set; if `balanced`, each domain that is used has equally many groups. `ceilings` name the scopes of the run; with
    any, every group lies within one of them. `per_area` has one rule for a level at most.
    """

    gpus: int
    pod_gpus: int
    group_gpus: int
    spares: int = 0
    may_spread: bool = True
    policy: Policy = Policy.FEWEST_DOMAINS
    ceilings: tuple[Ceiling, ...] = ()
    malleability: Malleability | None = None
    within: Within | None = None
    balanced: bool = False
    per_area: tuple[AreaRule, ...] = ()

    def __post_init__(self) -> None:
        if min(self.gpus, self.pod_gpus, self.group_gpus) < 1 or self.spares < 0:
            raise ValueError("a run has one GPU at least, in pods and groups of one GPU at least")
        if max(self.gpus, self.pod_gpus, self.group_gpus, self.spares) > MAX_GPUS:
            raise ValueError(f"a run has at most {MAX_GPUS} GPUs, and so have its pods, groups and spares")
        if self.group_gpus % self.pod_gpus:
            raise ValueError(f"groups of {self.group_gpus} GPUs do not divide into pods of {self.pod_gpus}")
        if self.gpus % self.pod_gpus:
            raise ValueError(f"{self.gpus} GPUs do not divide into pods of {self.pod_gpus}")
        if len({ceiling.scope for ceiling in self.ceilings}) < len(self.ceilings):
            raise ValueError("a run names each of its scopes once")
        if len({rule.level for rule in self.per_area}) < len(self.per_area):
            raise ValueError("a run has at most one rule for each level of areas, such as domain or rack")
        inner = 1
        for rule in self.layers:
            if rule.multiple % inner:
                raise ValueError(
                    f"{rule.multiple} groups in a {rule.level} do not divide into layers of {inner} groups"
                )
            inner = rule.multiple
        if inner > 1 and self.gpus % self.unit_gpus:
            raise ValueError(f"{self.gpus} GPUs do not divide into {inner} groups of {self.group_gpus}")

    @property
    def layers(self) -> tuple[AreaRule, ...]:
        """Return the rules that keep consecutive groups together, the innermost first."""
        found = [rule for rule in self.per_area if rule.multiple > 1]
        return tuple(sorted(found, key=lambda rule: AREAS.index(rule.level)))

    @property
    def limits_nodes(self) -> bool:
        """Return whether a rule limits the number of nodes in an area."""
        return any(rule.max_nodes is not None for rule in self.per_area)

    @property
    def unit_gpus(self) -> int:
        """Return by how many GPUs a run of whole groups can grow: the size of its outermost layer of groups."""
        return self.group_gpus * max((rule.multiple for rule in self.per_area), default=1)

    @property
    def groups(self) -> int:
        """Return the number of groups of the run, including a short last group."""
        return -(-self.gpus // self.group_gpus)

    @property
    def group_pods(self) -> int:
        """Return the number of pods of a whole group, without spares."""
        return self.group_gpus // self.pod_gpus

    @property
    def last_pods(self) -> int:
        """Return the number of pods of the last group, which may be short."""
        return (self.gpus - (self.groups - 1) * self.group_gpus) // self.pod_gpus

    @property
    def unit_pods(self) -> int:
        """Return the number of pods of a whole group plus its spares."""
        return self.group_pods + self.spares

    @property
    def missing_pods(self) -> int:
        """Return how many pods fewer the last group has than a whole group."""
        return self.group_pods - self.last_pods

    @property
    def all_pods(self) -> int:
        """Return the number of pods of the whole run plus all spares."""
        return self.groups * self.unit_pods - self.missing_pods

    @property
    def scope_names(self) -> list[str]:
        """Return the names of the run's scopes; a run without scopes has one with an empty name."""
        return [ceiling.scope for ceiling in self.ceilings] or [""]

    @property
    def scope_pods(self) -> list[int]:
        """Return the largest number of pods that each scope may take, spares included; empty without scopes."""
        return [ceiling.gpus // self.pod_gpus for ceiling in self.ceilings]

    @property
    def depth(self) -> int:
        """Return how many levels of their location all domains of the run must share.

        0 for no restriction, 4 for one domain.
        """
        if not self.may_spread:
            return 4
        return 0 if self.within is None else {Within.BLOCK: 3, Within.CLUSTER: 2}.get(self.within, 1)

    @property
    def smaller_sizes(self) -> range:
        """Return the smaller sizes that a malleable run may have in GPUs, the largest first."""
        if self.malleability is None:
            return range(0)
        step = lcm(self.malleability.step_gpus, self.unit_gpus if self.layers else self.pod_gpus)
        return range(self.gpus - step, self.malleability.min_gpus - 1, -step)

    @property
    def smallest(self) -> "Request":
        """Return the request at its smallest size, not malleable any more."""
        return replace(self, gpus=[self.gpus, *self.smaller_sizes[-1:]][-1], malleability=None)


class Share(NamedTuple):
    """A number of GPUs on one node."""

    node: str
    gpus: int


class Distance(StrEnum):
    """The closest level at which a spare is in the same area as its group.

    Domains share a rack if all nodes of both that the run may use are in it.
    """

    DOMAIN = "domain"
    RACK = "rack"
    BLOCK = "block"
    CLUSTER = "cluster"
    REGION = "region"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Spare:
    """A reserved pod place that can replace a lost pod of a group."""

    node: str
    gpus: int
    place: Location
    distance: Distance


@dataclass(frozen=True, slots=True)
class Group:
    """One group of a plan: its nodes by name, all in one domain, and in one scope ("" without scopes)."""

    index: int
    gpus: int
    place: Location
    scope: str
    nodes: tuple[Share, ...]
    spares: tuple[Spare, ...] = ()

    @property
    def shares(self) -> tuple[Share, ...]:
        """Return the GPUs that the group and its spares use on nodes; a node may occur several times."""
        return (*self.nodes, *(Share(spare.node, spare.gpus) for spare in self.spares))


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan of a run: the nodes of every group. `gpus` is the planned size, smaller if a malleable run was reduced.

    `hash` is sha256, in hex, of the request, the groups and the inventory's version as canonical JSON (RFC 8785).
    """

    request: Request
    gpus: int
    groups: tuple[Group, ...]
    metrics: PlanMetrics
    inventory_version: str
    hash: str


class FixKind(StrEnum):
    """The kind of a change that makes a refused run fit, with the form of its `changes`.

    SPREAD {"spread": 1}; LEAVE_AREA {level: 1}, the wider one that the run stays within, or {"anywhere": 1}; UNRULED
    {level: 0}, whose areas have no rule then; UNBALANCED {"balanced": 0}; SMALLER_PODS {"pod": n}, where every node is
    smaller than a pod; FEWER_SPARES {"spares": n}, pods a group; SPREAD_AND_FEWER_SPARES both; SMALLER {"gpus": n}, the
    size of the run; RAISE_CEILING {scope: GPUs}, the new ceiling; FREE_NODES {node: GPUs}, those in use there.
    """

    SPREAD = "spread"
    LEAVE_AREA = "leave-area"
    UNRULED = "unruled"
    UNBALANCED = "unbalanced"
    SMALLER_PODS = "smaller-pods"
    FEWER_SPARES = "fewer-spares"
    SPREAD_AND_FEWER_SPARES = "spread-and-fewer-spares"
    RAISE_CEILING = "raise-ceiling"
    FREE_NODES = "free-nodes"
    SMALLER = "smaller"


@dataclass(frozen=True, slots=True)
class Fix:
    """A change that makes a refused run fit, as a sentence; the planner has verified it.

    `least` says that no smaller change of its kind would do; else no smaller one was searched.
    """

    kind: FixKind
    sentence: str
    changes: Mapping[str, int] = field(default_factory=dict)
    least: bool = True


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a run does not fit. `largest_groups` is the number of whole groups that would fit."""

    level: Level
    message: str
    largest_groups: int


@dataclass(frozen=True, slots=True)
class FormerPlan:
    """The groups of a run's former plan, sorted by number. Numbers may be missing."""

    groups: tuple[Group, ...]

    def __post_init__(self) -> None:
        for before, group in zip((None, *self.groups), self.groups, strict=False):
            if group.index < 0 or (before is not None and before.index >= group.index):
                raise ValueError(f"group {group.index} of the former plan is out of order, or there twice")
            # bool is an int to Python, and comparisons with NaN are false: only whole numbers are let in.
            if not all(type(gpus) is int and 1 <= gpus <= MAX_GPUS for _, gpus in group.nodes):
                raise ValueError(f"group {group.index} of the former plan takes an impossible number of GPUs of a node")
            if sum(gpus for _, gpus in group.nodes) != group.gpus:
                raise ValueError(f"group {group.index} of the former plan says {group.gpus} GPUs, its nodes another")
            if len({name for name, _ in group.nodes}) < len(group.nodes):
                raise ValueError(f"group {group.index} of the former plan names a node twice")


@dataclass(frozen=True, slots=True)
class Repair:
    """A group that stays in its domain and scope but changes nodes: the GPUs that it gives up, and those it gets.

    `spares` are the pods that went to the nodes of spares, its own or its neighbors'.
    """

    group: int
    lost: tuple[Share, ...]
    taken: tuple[Share, ...]
    spares: int


@dataclass(frozen=True, slots=True)
class Replanned:
    """The new plan of a run that had a plan already, with the numbers of groups that stayed or moved.

    `kept` are on the nodes that they were on. `moved` were in the former plan and go elsewhere; groups that were in no
    plan before are in no list of the three. `plan.groups` lacks the numbers of groups that do not run, where a
    malleable run became smaller. It has fewer spares than requested where there is no room for more; `reasons` names
    these groups. `spares_used` are pods.
    """

    plan: Plan
    kept: tuple[int, ...]
    repaired: tuple[Repair, ...]
    moved: tuple[int, ...]
    spares_used: int
    reasons: tuple[str, ...]
