"""The controller opens a rollout rank by rank, from the reports of nodes, also after a restart."""

from collections.abc import Iterator

import pytest
from gkm.api.rollouts import LAST_RANK, RolloutPolicy, RolloutStatus, is_open, rank_of
from gkm.kube.resources import GKMCACHES
from gkm_operator.caches import rollout
from support.host.waiting import until
from support.operator.controller import IMAGE, Site
from support.operator.deployment import cache
from support.operator.images import DIGEST

PENDING, READY = {"x": {"state": "Pending"}}, {"x": {"state": "Ready", "digest": DIGEST}}
NODES = sorted((f"node-{number}" for number in range(4)), key=lambda node: rank_of(node, DIGEST))


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(rollout, "SETTLE_SECONDS", 0.3)
    made = Site()
    yield made
    made.stop.set()
    made.controller.close()


def create(site: Site, nodes: int) -> None:
    value = cache("x", IMAGE, "a")
    value["spec"]["rollout"] = {"maxConcurrentNodes": nodes}
    site.api.create(GKMCACHES, value)


def admitted(site: Site) -> list[str]:
    status = site.status()
    return [node for node in NODES if is_open(RolloutPolicy(1), status.rollout, node, DIGEST)]


def test_one_node_after_the_other_is_admitted(site: Site) -> None:
    for node in NODES:
        site.report(node, PENDING)
    create(site, 1)
    site.run()
    for number, node in enumerate(NODES, 1):
        until(lambda count=number: admitted(site) == NODES[:count], f"{number} nodes are admitted")  # type: ignore[misc]
        site.report(node, READY)
        if number == 2:
            site.restart()
    until(lambda: site.status().rollout == RolloutStatus(DIGEST, LAST_RANK), "every rank is open")
    assert site.status().ready_nodes == len(NODES)


def test_nothing_is_open_before_the_first_node_reports(site: Site) -> None:
    create(site, 2)
    site.run()
    site.until_verified()
    site.quiet()
    assert site.status().rollout is None
    site.report(NODES[0], PENDING)
    until(lambda: admitted(site), "the node is admitted")


def test_without_the_policy_the_status_names_no_place(site: Site) -> None:
    create(site, 1)
    site.report(NODES[0], READY)
    site.run()
    until(lambda: site.status().rollout is not None, "every rank is open")
    site.api.merge(GKMCACHES, "x", {"spec": {"rollout": None}}, namespace="a")
    until(lambda: site.status().rollout is None, "nothing bounds the nodes")
