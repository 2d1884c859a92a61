"""After any history of node objects, Nodes and agents, the totals equal those of the present objects."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import msgspec
from gkm.api.caches import CacheSpec, GKMCache
from gkm.api.meta import ObjectMeta
from gkm_operator.caches import status
from gkm_operator.caches.fleet import Fleet
from gkm_operator.caches.node_reports import NodeObject, reports_of
from gkm_operator.caches.outcome import verdict_outcome
from gkm_operator.caches.totals import CacheKey, CacheSummary
from gkm_operator.images import ImageClaims
from gkm_operator.pods import WatchedPod
from hypothesis import given
from hypothesis import strategies as st
from support.operator.images import DIGEST, GOOD, OTHER
from support.operator.nodes import a_report, an_agent

IMAGE, NOW = "registry.test/team/cache:1", "2026-01-02T00:00:00Z"
GOING = "2026-01-01T00:00:00Z"
NAMES = ("n1", "n2", "n3", "n4", "n5")
KEYS = [CacheKey(namespace, name) for namespace in ("a", "") for name in ("x", "y")]


@dataclass(frozen=True)
class Reported:
    """A node object appears with these reports; None deletes it."""

    name: str
    namespace: str
    caches: dict[str, dict[str, Any]] | None


@dataclass(frozen=True)
class NodeIs:
    """A Node is Ready, or not, or with None is gone."""

    name: str
    ready: bool | None


@dataclass(frozen=True)
class AgentIs:
    """An agent's Pod is so on a node, or with None is gone."""

    pod: str
    node: str
    ready: bool | None
    going: bool


@dataclass(frozen=True)
class Deployed:
    """The DaemonSet is there."""

    there: bool


Event = Reported | NodeIs | AgentIs | Deployed


@dataclass
class World:
    """The present objects, and a fleet that received every change as reflectors report it."""

    fleet: Fleet = field(default_factory=Fleet)
    reports: dict[tuple[str, str], NodeObject] = field(default_factory=dict)
    nodes: dict[str, bool] = field(default_factory=dict)
    agents: dict[str, WatchedPod] = field(default_factory=dict)
    deployed: bool = False

    def happen(self, event: Event) -> set[CacheKey]:
        match event:
            case Reported(name, namespace, caches):
                new = None if caches is None else a_report(name, caches, namespace or None)
                return self.fleet.reported(_kept(self.reports, (namespace, name), new), new)
            case NodeIs(name, ready):
                _kept(self.nodes, name, ready)
                return self.fleet.node(name, ready=ready)
            case AgentIs(pod, node, ready, going):
                meta = {"deletionTimestamp": GOING} if going else {}
                agent = None if ready is None else an_agent(node, str(ready), name=pod, **meta)
                return self.fleet.agent(_kept(self.agents, pod, agent), agent)
            case Deployed(there):
                self.deployed = there
                return self.fleet.agents_deployed(deployed=there)

    def told_to(self, other: Fleet) -> list[Callable[[], object]]:
        """Return the calls that pass all present objects to another fleet."""
        return [
            *(partial(other.reported, None, report) for report in self.reports.values()),
            *(partial(other.agent, None, agent) for agent in self.agents.values()),
            *(partial(other.node, name, ready=ready) for name, ready in self.nodes.items()),
            partial(other.agents_deployed, deployed=self.deployed),
        ]

    def summaries(self) -> dict[tuple[CacheKey, str | None], CacheSummary]:
        return {(key, digest): self.fleet.summary(key, digest) for key in KEYS for digest in (None, DIGEST, OTHER)}

    def counted(self, key: CacheKey, digest: str | None) -> CacheSummary:
        """Count from scratch, by the table of docs/design/aggregation.md."""
        parts = {
            name: reports_of(report)[key.name]
            for (namespace, name), report in sorted(self.reports.items())
            if namespace == key.namespace and key.name in reports_of(report) and name in self.nodes
        }
        unserved = [name for name, part in parts.items() if part.unserved and part.digest in {"", digest or ""}]
        silences = {name: why for name in parts if (why := self._silence(name))}
        failures: dict[str, list[str]] = {}
        misfits: dict[str, list[str]] = {}
        for name, part in parts.items():
            for reason, nodes in ((part.failure, failures), (part.misfit, misfits)):
                if reason and part.digest in {"", digest or ""}:
                    nodes.setdefault(reason, []).append(name)
        return CacheSummary(
            total=len(parts),
            ready=sum(part.ready and part.digest == digest for name, part in parts.items() if name not in silences),
            failed=sum(map(len, failures.values())),
            pods=sum(part.pods for part in parts.values()),
            failures=failures,
            silent=len(silences),
            silences=dict(list(silences.items())[:3]),
            incompatible=sum(map(len, misfits.values())),
            misfits=misfits,
            unserved=len(unserved),
            unserved_named=tuple(unserved[:3]),
        )

    def _silence(self, name: str) -> str:
        if not self.nodes[name]:
            return "the Node is not ready"
        answers = any(agent.node == name and agent.ready for agent in self.agents.values())
        return "its agent is not ready" if self.deployed and not answers else ""


def _kept(memory: dict[Any, Any], key: object, new: object) -> Any:  # noqa: ANN401 -- whatever the memory holds
    """Put a value into a memory, or with None take it away; return the old one."""
    old = memory.pop(key, None)
    if new is not None:
        memory[key] = new
    return old


saying = st.fixed_dictionaries(
    {"state": st.sampled_from(["Ready", "Failed", "Incompatible", "Pending", "Strange"])},
    optional={
        "digest": st.sampled_from([DIGEST, OTHER]),
        "reason": st.sampled_from(["DiskFull", "NoGPU", "GPULost", "no word"]),
        "podsWithoutCache": st.integers(0, 2),
        "podWaits": st.booleans(),
        "pods": st.lists(st.just({"name": "p"}), max_size=2),
    },
)
happening: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        Reported,
        st.sampled_from(NAMES),
        st.sampled_from(["a", ""]),
        st.none() | st.dictionaries(st.sampled_from("xyz"), saying),
    ),
    st.builds(NodeIs, st.sampled_from(NAMES), st.sampled_from([True, True, False, None])),
    st.builds(
        AgentIs,
        st.sampled_from(["p1", "p2", "p3", "p4"]),
        st.sampled_from(["", *NAMES]),
        st.sampled_from([True, True, False, None]),
        st.booleans(),
    ),
    st.builds(Deployed, st.booleans()),
)
everybody = [NodeIs(name, ready=True) for name in NAMES]
histories = st.lists(happening, max_size=50).map(lambda events: [*everybody, *events])


@given(histories)
def test_totals_updated_by_differences_equal_a_full_count(history: list[Event]) -> None:
    world = World()
    for event in history:
        world.happen(event)
    assert world.summaries() == {asked: world.counted(*asked) for asked in world.summaries()}


@given(histories)
def test_a_change_names_every_cache_whose_sums_it_changed(history: list[Event]) -> None:
    world = World()
    for event in history:
        before = world.summaries()
        told = world.happen(event)
        after = world.summaries()
        assert {key for key, digest in before if before[key, digest] != after[key, digest]} <= told


@given(histories, st.randoms(use_true_random=False))
def test_the_same_objects_in_any_order_give_the_same_status(history: list[Event], order: Random) -> None:
    world = World()
    for event in history:
        world.happen(event)
    anew = Fleet()
    tellings = world.told_to(anew)
    order.shuffle(tellings)
    for tell in tellings:
        tell()
    for key in KEYS:
        assert written(world.fleet, key) == written(anew, key)


@given(histories)
def test_deleted_objects_leave_no_state(history: list[Event]) -> None:
    world = World()
    for event in history:
        world.happen(event)
    for namespace, name in list(world.reports):
        world.happen(Reported(name, namespace, None))
    for pod in list(world.agents):
        world.happen(AgentIs(pod, "", ready=None, going=False))
    for name in list(world.nodes):
        world.happen(NodeIs(name, ready=None))
    fleet = world.fleet
    assert (fleet._totals, len(fleet._reports.keys()), len(fleet._liveness.agents.keys())) == ({}, 0, 0)
    assert fleet._liveness.nodes == {}


def written(fleet: Fleet, key: CacheKey) -> bytes:
    """Return the status that is applied, byte for byte."""
    cache = GKMCache(ObjectMeta(name=key.name, namespace=key.namespace, uid="u", generation=1), CacheSpec(IMAGE))
    wanted = status.desired_status(
        cache, verdict_outcome(IMAGE, DIGEST, GOOD, ImageClaims(7)), fleet.summary(key, DIGEST), NOW
    )
    assert wanted is not None
    return msgspec.json.encode(status.apply_configuration(cache, wanted))
