"""Whole free nodes are counted by clique and product, and the ConfigMap is written on change."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from gkm.api.domain_capacity import CliqueCapacity, DomainCapacity, NodePool, parse_capacity, parse_conditions
from gkm.api.meta import Condition
from gkm.kube.controller import WatchSet
from gkm.kube.elector import NotLeading
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS, NODES, Json, Resource
from gkm_operator.computedomains.capacity import (
    INTERVAL_SECONDS,
    MAX_TEXT,
    REFUSED_SECONDS,
    CapacityReport,
    capacity,
    capacity_text,
)
from gkm_operator.last_write import REPEAT_SECONDS
from support.grove.objects import claim_template
from support.grove.observed import CLIQUE, node, node_json
from support.grove.pods import pod
from support.host.waiting import until
from support.kube.fake_api import FakeApi
from support.kube.leading import leading
from support.operator.domain_status import status_controller
from support.operator.domains import TEMPLATES

OTHER = CLIQUE.removesuffix("1") + "2"
PODS: Resource[Json] = Resource("v1", "Pod", "pods", namespaced=True, type=dict)


def nothing_runs(_node: str) -> bool:
    return False


@pytest.mark.parametrize(
    ("fields", "free"),
    [
        ({}, 1),
        ({"ready": False}, 0),
        ({"cordoned": True}, 0),
        ({"held_by": "uid-of-a-domain"}, 0),
        ({"gpus": 0}, 0),  # its device plugin is down
        ({"gpus": None}, 1),  # DRA assigns its GPUs
        ({"gpus": "many"}, 0),
        ({"gkm__io___fabric-health": "unhealthy"}, 0),
        ({"gkm__io___fabric-health": "degraded"}, 1),
        ({"gkm__io___fabric-health": "no label value!"}, 0),
    ],
)
def test_a_whole_node_is_free_if_a_domain_could_have_it(fields: dict[str, Any], free: int) -> None:
    found = capacity([node("n1", **fields)], nothing_runs)
    pools = [pool for entry in found.cliques for pool in entry.pools] or list(found.without_fabric)
    assert [pool.free for pool in pools] == [free]


def test_a_node_on_which_gpus_are_used_is_not_free() -> None:
    found = capacity([node("n1"), node("n2")], lambda name: name == "n2")
    assert found.cliques == (CliqueCapacity(CLIQUE, (NodePool("nvidia-gb200", 4, nodes=2, free=1),)),)


def test_cliques_with_the_most_free_nodes_come_first_whatever_the_order_of_nodes() -> None:
    nodes = [node(f"a{number}") for number in range(3)] + [node(f"b{number}", OTHER) for number in range(4)]
    nodes += [node("plain", ""), node("odd", CLIQUE, 8)]
    expected = DomainCapacity(
        (
            CliqueCapacity(CLIQUE, (NodePool("nvidia-gb200", 4, 3, 3), NodePool("nvidia-gb200", 8, 1, 1))),
            CliqueCapacity(OTHER, (NodePool("nvidia-gb200", 4, 4, 4),)),
        ),
        (NodePool("nvidia-gb200", 4, 1, 1),),
    )
    for seed in range(5):
        random.Random(seed).shuffle(nodes)
        assert capacity(nodes, nothing_runs) == expected


def test_nodes_without_gpus_and_without_fabric_are_no_capacity() -> None:
    bare = node("bare", "", None)
    assert capacity([bare], nothing_runs) == DomainCapacity()


def test_the_label_of_a_node_counts_before_that_of_another_writer() -> None:
    found = capacity([node("n1", gkm__io___fabric_domain="x", **{"gkm__io___fabric-domain": OTHER})], nothing_runs)
    assert [entry.name for entry in found.cliques] == [OTHER]


def test_a_huge_cluster_fits_into_the_config_map() -> None:
    nodes = [node(f"n{number}", f"{'c' * 50}-{number % 6000}", number % 16) for number in range(24_000)]
    found = capacity(nodes, nothing_runs)
    text = capacity_text(found)
    assert len(text) <= MAX_TEXT
    read = parse_capacity(text)
    assert read.cliques == found.cliques[: len(read.cliques)]
    assert len(read.cliques) > 1000


class Site:
    """A controller with its watches, and the ConfigMap that it writes."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.conditions: Sequence[Condition] = ()
        self.watches = WatchSet()
        self.report = CapacityReport(
            self.api,
            "gkm-system",
            capacity=lambda: self.status.observer.capacity(),  # noqa: PLW0108 -- it is made after this
            conditions=lambda: self.conditions,
        )
        self.watcher, self.status = status_controller(self.api, capacity_changed=self.report.changed)

    def start(self) -> None:
        self.status.observer.follow_nodes()
        self.watches.start(*self.watcher.reflectors(sets=False), *self.status.observer.reflectors(grove=False))
        until(lambda: self.watches.synced, "the lists")
        self.report.changed()
        self.report.queue.start()

    def close(self) -> None:
        self.report.queue.close(3.0)
        self.watches.close(1.0)

    def capacity(self) -> DomainCapacity | None:
        written = self.api._objects.get(("configmaps", "gkm-system", "gkm-domains"))
        return parse_capacity(written["data"]["capacity"]) if written else None

    def free(self) -> int:
        found = self.capacity()
        return sum(entry.free for entry in found.cliques) if found else -1


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr("gkm_operator.computedomains.capacity.INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr("gkm_operator.computedomains.capacity.CALM_SECONDS", 0.01)
    made = Site()
    yield made
    made.close()


def test_the_capacity_follows_nodes_and_pods(site: Site) -> None:
    for name in ("n1", "n2", "n3", "n4"):
        site.api.create(NODES, node_json(name))
        site.api._store(NODES, ("nodes", "", name), None, node_json(name))
    site.start()
    until(lambda: site.free() == 4, "all nodes to be free")
    site.api.create(PODS, pod("gpus", node="n1"))
    site.api.create(PODS, pod("no-gpus", 0, node="n2"))
    site.api.create(TEMPLATES, claim_template("by-dra", "gpu.nvidia.com"))
    site.api.create(TEMPLATES, claim_template("network", "nic.example.com"))
    site.api.create(PODS, pod("dra", 0, node="n3", template="by-dra"))
    site.api.create(PODS, pod("nic", 0, node="n4", template="network"))
    until(lambda: site.free() == 2, "the GPUs of two nodes to be in use")
    site.api.delete(NODES, "n4")
    until(lambda: (found := site.capacity()) is not None and found.cliques[0].nodes == 3, "a removed node to vanish")
    site.api.delete(PODS, "gpus", "team")
    until(lambda: site.free() == 2, "a pod that ends to free its node")


def test_the_conditions_of_the_feature_are_written_beside(site: Site) -> None:
    site.start()
    until(lambda: site.capacity() == DomainCapacity(), "the first write")
    condition = Condition("DomainsAvailable", "False", "KindMissing", "install it", "2026-01-01T00:00:00Z")
    site.conditions = (condition,)
    site.report.changed()

    def written() -> bool:
        data = site.api._objects["configmaps", "gkm-system", "gkm-domains"]["data"]
        return parse_conditions(data["conditions"]) == (condition,)

    until(written, "the condition")


class Clocked:
    """A report with a clock that stands still."""

    def __init__(self, api: FakeApi) -> None:
        self.now = 100.0
        self.found: DomainCapacity | None = DomainCapacity()
        self.leads = True
        self.report = CapacityReport(
            leading(api, lambda: self.leads),
            "gkm-system",
            capacity=lambda: self.found,
            conditions=tuple,
            clock=lambda: self.now,
        )


def applied(api: FakeApi) -> int:
    return sum(verb == "apply" for verb, _, _ in api.calls)


def test_an_unchanged_capacity_is_not_written_again() -> None:
    api = FakeApi()
    clocked = Clocked(api)
    for _ in range(3):
        clocked.report.write("gkm-domains")
    assert applied(api) == 1
    clocked.found = DomainCapacity((), (NodePool("p", 8, 1, 1),))
    clocked.report.write("gkm-domains")
    assert applied(api) == 2


def test_a_deleted_config_map_comes_back_without_another_change() -> None:
    api = FakeApi()
    clocked = Clocked(api)
    clocked.report.write("gkm-domains")
    api.delete(CONFIGMAPS, "gkm-domains", "gkm-system")
    clocked.now += REPEAT_SECONDS - 1.0
    clocked.report.write("gkm-domains")
    assert applied(api) == 1
    clocked.now += 1.0
    clocked.report.write("gkm-domains")
    assert ("configmaps", "gkm-system", "gkm-domains") in api._objects, "the report is gone until its content changes"


def test_a_write_that_failed_is_repeated_without_another_change() -> None:
    api = FakeApi()
    clocked = Clocked(api)
    api.fault = lambda verb, _: ApiError(503, "ServiceUnavailable", "away") if verb == "apply" else None
    with pytest.raises(ApiError, match="ServiceUnavailable: away"):
        clocked.report.write("gkm-domains")
    api.fault = lambda _verb, _plural: None
    clocked.report.write("gkm-domains")
    assert ("configmaps", "gkm-system", "gkm-domains") in api._objects


def test_without_the_right_to_write_conditions_of_an_unused_feature_are_tried_rarely() -> None:
    api = FakeApi()
    clocked = Clocked(api)
    api.fault = lambda verb, _: ApiError(403, "Forbidden", "denied") if verb == "apply" else None
    with pytest.raises(ApiError, match="Forbidden: denied"):
        clocked.report.write("gkm-domains")
    clocked.found = None
    assert clocked.report.write("gkm-domains") == REFUSED_SECONDS
    api.fault = lambda _verb, _plural: None
    assert clocked.report.write("gkm-domains") is None
    assert set(api._objects["configmaps", "gkm-system", "gkm-domains"]["data"]) == {"conditions"}


def test_changes_after_a_write_wait_for_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    api = FakeApi()
    clocked = Clocked(api)
    delays: list[float] = []
    monkeypatch.setattr(clocked.report.queue, "add", lambda _key, after: delays.append(after))
    clocked.report.changed()
    clocked.report.write("gkm-domains")
    clocked.report.changed()
    clocked.now += 4.0
    clocked.report.changed()
    assert delays == [0.5, INTERVAL_SECONDS, 1.0]


def test_a_report_of_a_process_that_does_not_lead_writes_nothing() -> None:
    api = FakeApi()
    clocked = Clocked(api)
    clocked.leads = False
    with pytest.raises(NotLeading, match="no longer holds the lease"):
        clocked.report.write("gkm-domains")
    assert api.calls == []
