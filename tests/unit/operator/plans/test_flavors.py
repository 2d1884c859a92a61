"""The leader writes the flavors of all nodes where the policy reads them, on change only."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from gkm.kube.resources import NODES, SERVICE_ACCOUNTS
from gkm.topology.nodes import Node
from gkm_operator import last_write
from gkm_operator.plans.write.flavors import MAX_FLAVORS, FlavorCounts
from support.host.waiting import until
from support.operator.nodes import kube_node
from support.operator.plans import PlansSite, gpu_node

KEYS = ("gpu.flavor", "second.flavor")


def read(node: dict[str, Any]) -> Node:
    return msgspec.json.decode(msgspec.json.encode(node), type=Node)


@pytest.fixture
def site() -> Iterator[PlansSite]:
    made = PlansSite()
    yield made
    made.controller.close()


def test_flavors_are_those_of_existing_nodes_in_lower_case() -> None:
    counts = FlavorCounts(KEYS)
    assert counts.text() == ""
    one, other = read(gpu_node("a", "d")), read(gpu_node("b", "d", gpu__flavor="gb200"))
    assert counts.change(None, one)
    assert counts.change(None, other)
    assert not counts.change(None, read(kube_node("c")))
    assert not counts.change(one, read(gpu_node("a", "d", ready="False")))
    assert counts.text() == "gb200,h100"
    counts.change(one, None)
    assert counts.text() == "gb200"


def test_configured_flavors_count_if_any_node_has_a_flavor() -> None:
    counts = FlavorCounts(KEYS, ["B300"])
    counts.change(None, read(gpu_node("a", "d")))
    assert counts.text() == "b300,h100"


def test_too_many_flavors_are_not_published() -> None:
    counts = FlavorCounts(KEYS)
    for number in range(MAX_FLAVORS + 1):
        counts.change(None, read(gpu_node("a", "d", gpu__flavor=f"f{number}")))
    assert counts.text() == ""


def test_the_leader_writes_changed_flavors_without_any_run(site: PlansSite) -> None:
    site.rack("d1")
    site.controller.work()
    until(lambda: site.flavors() == "h100", "it is written")
    site.nodes(gpu_node("g", "d9", gpu__flavor="gb200"))
    until(lambda: site.flavors() == "gb200,h100", "it is written again")
    before = len([call for call in site.api.calls if call[:2] == ("apply", "serviceaccounts")])
    site.api.merge(NODES, "g", {"spec": {"unschedulable": True}})
    site.ask("r", 16)
    assert site.api.calls.count(("list", "pods", "")) <= 1
    until(lambda: ("list", "pods", "") in list(site.api.calls), "pods are listed once there is a run")
    assert len([call for call in site.api.calls if call[:2] == ("apply", "serviceaccounts")]) == before == 2


def test_a_deleted_service_account_comes_back_while_no_flavor_changes(
    site: PlansSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_write, "REPEAT_SECONDS", 0.0)
    site.rack("d1")
    site.controller.work()
    until(lambda: site.flavors() == "h100", "it is written")
    site.api.delete(SERVICE_ACCOUNTS, "gkm-flavors", "gkm-system")
    site.ask("r", 16)
    until(lambda: site.flavors() == "h100", "it is written again, or any flavor is admitted")
