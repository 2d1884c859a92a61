"""The parts of `gkm status`, which every output format prints; their JSON fields are added, never renamed. Pure.

Texts may hold names from the cluster: whoever prints them must escape them.
"""

from dataclasses import dataclass
from typing import Any

from msgspec import Struct, field

CACHE_STATES = ("ready", "pulling", "waiting", "failed", "refused", "fits no node", "deleting")
FAULTY = ("failed", "refused", "fits no node")
"""States of a cache in which a person must act."""


class NotKnown(Struct, frozen=True, rename={"why": "notKnown"}):
    """A part of the status that could not be read: why, and what to do next."""

    why: str
    hint: str


class Nodes(Struct, frozen=True, rename="camel"):
    """Numbers of nodes. GPUs are those that a device plugin has announced, of NVIDIA or AMD.

    `served` nodes have GPUs and a ready agent; `unserved` ones have GPUs and no ready agent.
    """

    total: int
    ready: int
    with_gpus: int = field(name="withGPUs")
    served: int
    agents: int
    ready_agents: int
    unserved: tuple[str, ...]


class CacheState(Struct, frozen=True, rename="camel"):
    """The state of a cache for `gkm status`: one of CACHE_STATES. The numbers are nodes, each in one of the five.

    `cause` is the reason of the first condition that is not True, `message` its sentence.
    """

    kind: str
    namespace: str
    name: str
    family: str
    generation: int
    state: str
    ready_nodes: int
    pulling_nodes: int
    waiting_nodes: int
    failed_nodes: int
    incompatible_nodes: int
    cause: str
    message: str


class CacheKind(Struct, frozen=True, rename="camel"):
    """The caches of a kind, GKMCache or ClusterGKMCache, by state.

    Nodes take `held_back` generations last, because they made pods fail.
    """

    kind: str
    total: int
    states: dict[str, int]
    families: int
    generations: int
    pinned: int
    held_back: int


class Caches(Struct, frozen=True):
    """The caches by kind, and the state of each cache: caches with a fault first."""

    kinds: tuple[CacheKind, ...]
    caches: tuple[CacheState, ...]


class WaitingVolume(Struct, frozen=True):
    """Pods of a namespace that wait for a volume of a cache; `first` is one of them, `why` its reason."""

    namespace: str
    cache: str
    pods: int
    first: str
    why: str
    next: str


class WaitingPods(Struct, frozen=True):
    """All pods that wait for a volume of GKM."""

    total: int
    volumes: tuple[WaitingVolume, ...]


class FabricDomain(Struct, frozen=True):
    """A fabric domain with the numbers of its nodes by health; the labels of `unknown` nodes state no health."""

    name: str
    nodes: int
    healthy: int
    impaired: int
    unknown: int


class FabricDomains(Struct, frozen=True, rename="camel"):
    """The fabric domains, those with impaired nodes first; nodes with GPUs and no domain; nodes with invalid labels."""

    domains: tuple[FabricDomain, ...]
    outside: int
    invalid: tuple[str, ...]


class WorkloadDomain(Struct, frozen=True):
    """A ComputeDomain. `state` is ready, unused, not ready, terminating or not reported.

    `joined` and `ready` are nodes of the `expected` ones, as the condition MNNVLReady counts them.
    """

    namespace: str
    name: str
    state: str
    expected: int
    joined: int
    ready: int
    reason: str
    message: str


class RunState(Struct, frozen=True, rename="camel"):
    """The state of a Run: its condition Planned in `state` and `reason`, the wanted and planned GPUs, and its plan."""

    namespace: str
    name: str
    state: str
    gpus: int
    planned_gpus: int = field(name="plannedGPUs")
    domains: int
    plan: str
    reason: str
    message: str


class CheckFindings(Struct, frozen=True, rename="camel"):
    """A check of gkm doctor with findings."""

    check: str
    problems: int
    warnings: int
    not_checked: int


class Problems(Struct, frozen=True, rename="camel"):
    """What gkm doctor finds; `left_out` are the checks that it would make besides."""

    checks: int
    problems: int
    warnings: int
    not_checked: int
    found: tuple[CheckFindings, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a cluster at a time of its API server. With a `namespace`, parts of the whole cluster are None."""

    time: str
    namespace: str
    nodes: Nodes | NotKnown | None
    caches: Caches | NotKnown
    waiting_pods: WaitingPods | NotKnown
    fabric_domains: FabricDomains | NotKnown | None
    compute_domains: tuple[WorkloadDomain, ...] | NotKnown
    runs: tuple[RunState, ...] | NotKnown
    problems: Problems

    @property
    def unknown(self) -> list[str]:
        """Return the parts that are not known, and `problems` if a check could not read what it needs."""
        parts = (name for name, part in result(self).items() if isinstance(part, NotKnown))
        return [*parts, *(["problems"] if self.problems.not_checked else [])]


def result(status: Status) -> dict[str, Any]:
    """Return a status as fields of the JSON output."""
    return {
        "time": status.time,
        "namespace": status.namespace,
        "nodes": status.nodes,
        "caches": status.caches,
        "waitingPods": status.waiting_pods,
        "fabricDomains": status.fabric_domains,
        "computeDomains": status.compute_domains,
        "runs": status.runs,
        "problems": status.problems,
    }
