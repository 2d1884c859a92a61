"""The one form of a pod: what each controller needs of it, and nothing that none needs."""

import json
from typing import Any

import msgspec
import pytest
from gkm.api.mnnvl_metadata import Owner
from gkm.api.network_settings import Network
from gkm.api.topology_settings import Topology
from gkm.kube.api import Key, ObjectEntry
from gkm.kube.informers import Informers, Selection
from gkm.kube.memory import MAX_HELD_BYTES, bounded, held_bytes
from gkm.kube.resources import Json, Resource
from gkm.topology.pods import NodeLoad
from gkm_operator.caches.fleet import NodeWatcher
from gkm_operator.computedomains.watcher import DomainPods
from gkm_operator.mnnvl.gpu_requests import GPURequests
from gkm_operator.plans.state.free_capacity import PodUsageIndex
from gkm_operator.plans.state.objects import PlanIndex
from gkm_operator.plans.state.watcher import ClusterWatcher
from gkm_operator.pods import PODS, WatchedPod, is_agent, is_task, occupies_node
from gkm_operator.taskgroups.watcher import GroupWatcher
from support.grove.pods import pod
from support.host.waiting import scaled
from support.kube.fake_api import FakeApi
from support.kube.listing import list_now, reflector_of

RAW: Resource[Json] = Resource("v1", "Pod", "pods", namespaced=True, type=dict)
MANY_CLAIMS = [{"name": f"c{number}", "resourceClaimName": "n" * 253} for number in range(64)]
FULL = [{"apiVersion": "v1", "kind": "k" * 253, "name": f"{n}" + "n" * 250, "uid": "u" * 253} for n in range(9)]


def read(value: Json) -> WatchedPod:
    return msgspec.json.decode(json.dumps(value), type=WatchedPod)


def made(name: str = "a", gpus: int = 8, *, labels: dict[str, str] | None = None, **fields: Any) -> Json:  # noqa: ANN401
    found = pod(name, gpus, **fields)
    found["metadata"]["labels"] |= labels or {}
    return found


def large(**fields: Any) -> Json:  # noqa: ANN401 -- JSON
    found = made(node="n1", labels={"gkm.io/run": "r"}, **fields)
    found["spec"]["resourceClaims"] = MANY_CLAIMS
    return found


def test_a_pod_of_which_only_the_requests_count_has_only_its_name_besides() -> None:
    found = read(made(gpus=0, node="n1", owner="job", labels={"app.kubernetes.io/part-of": "x"}, terminating=True))
    assert (found.metadata.uid, found.metadata.owner_references, found.metadata.labels) == ("", None, None)
    assert (found.metadata.creation_timestamp, found.metadata.deletion_timestamp, found.started) == ("", None, "")
    assert (found.key, found.node, found.load.pods) == (("team", "a"), "n1", 1)


@pytest.mark.parametrize(
    ("fields", "readers"),
    [
        ({"gpus": 0}, ""),
        ({"gpus": 0, "node": "n1"}, "plans"),
        ({"node": "n1"}, "plans domains"),
        ({"template": "t"}, "domains"),
        ({"node": "n1", "phase": "Succeeded"}, ""),
        ({"labels": {"gkm.io/task-group": ""}, "gpus": 0}, ""),
        ({"labels": {"gkm.io/task-group": "g"}, "phase": "Failed"}, "groups"),
        ({"labels": {"app.kubernetes.io/name": "gkm-agent"}, "gpus": 0, "node": "n1"}, "plans"),
        ({"labels": {"app.kubernetes.io/name": "gkm-agent"}, "gpus": 0, "namespace": "gkm-system"}, "agents"),
    ],
)
def test_who_needs_a_pod(fields: dict[str, Any], readers: str) -> None:
    found, domains = read(made(**fields)), DomainPods(Informers(FakeApi()), GPURequests(Network()))
    wanted = {"agents": is_agent("gkm-system"), "plans": occupies_node, "domains": domains.matters, "groups": is_task}
    assert [name for name, wants in wanted.items() if wants(found)] == readers.split()


@pytest.mark.parametrize(
    ("node", "reason", "unbound"),
    [("", "Unschedulable", "0/6 nodes"), ("", "SchedulingGated", ""), ("n1", "Unschedulable", "")],
)
def test_only_a_pod_that_a_scheduler_tried_says_why_it_has_no_node(node: str, reason: str, unbound: str) -> None:
    waits = {"type": "PodScheduled", "status": "False", "reason": reason, "message": "0/6 nodes"}
    found = made(node=node, labels={"gkm.io/run": "r"})
    found["status"]["conditions"] = [{"type": "Initialized", "status": "True"}, waits]
    of_run = read(found).of_run
    assert of_run is not None
    assert of_run.unbound == unbound


def test_the_message_of_a_scheduler_is_bounded() -> None:
    found = made(node="", labels={"gkm.io/run": "r"})
    long = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "x" * 100_000}
    found["status"]["conditions"] = [long]
    assert held_bytes(read(found)) < MAX_HELD_BYTES


def test_a_pod_with_too_many_claims_still_counts_its_gpus_and_is_no_user_of_a_domain() -> None:
    """A user must not hide GPUs from plans, nor make a process hold what it fills."""
    api, refused, usage = FakeApi(), list[tuple[ObjectEntry[Any], str]](), PodUsageIndex()
    informers = Informers(api)
    domains = DomainPods(informers, GPURequests(Network()), lambda _resource, entry, why: refused.append((entry, why)))

    def counted(old: WatchedPod | None, new: WatchedPod | None) -> None:
        usage.change(old, new)

    api.create(RAW, large(domain="d"))
    list_now(domains.watch)
    list_now(informers.select(PODS, counted, wants=occupies_node))
    assert (domains.labeled("team", "d"), domains.on_node("n1")) == ((), ())
    assert [(entry.key, why.partition(":")[0]) for entry, why in refused] == [(("team", "a"), "claims")]
    assert usage.usage().usage.gpus == {"n1": 8}
    api.delete(RAW, "a", "team")
    list_now(domains.watch)
    assert usage.usage().usage.gpus == {}


def test_the_outline_of_a_large_pod_fits_and_has_what_plans_and_groups_need() -> None:
    value = large(terminating=True)
    value["metadata"]["labels"] |= {"gkm.io/task-group": "g", "gkm.io/compute-domain": "d"}
    whole = read(value)
    held = bounded(whole)
    assert held_bytes(held) <= MAX_HELD_BYTES < held_bytes(whole)
    assert (held.claims, held.resources, held.domain, held.refused != "") == ((), (), "", True)
    assert (held.node, held.gpus, held.metadata.run, held.metadata.group[1]) == ("n1", 8, "r", "g")
    assert (held.metadata.uid, held.metadata.terminating) == (whole.metadata.uid, True)


def test_a_pod_with_large_owners_keeps_the_one_that_controls_and_all_else() -> None:
    value = made(node="n1", template="t")
    value["metadata"]["ownerReferences"] = [*FULL, {**FULL[0], "name": "boss", "controller": True}]
    held = bounded(read(value))
    assert [owner.name for owner in held.metadata.owner_references or ()] == ["boss"]
    assert isinstance(held.metadata.controller, Owner)
    assert (held.templates, held.refused) == (frozenset({"t"}), "")


def test_a_spec_that_cannot_be_read_is_a_fault_of_its_node_and_refused() -> None:
    value = made(node="n1")
    value["spec"]["containers"] = [{"name": f"c{number}"} for number in range(4097)]
    found = read(value)
    assert (found.node, found.gpus, found.load, found.resources) == ("n1", 0, NodeLoad(), ())
    assert found.fault.startswith("Expected `array` of length <= 4096")
    assert found.refused == f"spec cannot be read: {found.fault}"


def test_an_amount_that_is_no_number_is_a_fault_and_the_claims_count() -> None:
    value = made(node="n1", template="t")
    value["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "1.5"
    value["spec"]["containers"][0]["resources"].pop("requests", None)
    found = read(value)
    assert (found.fault, found.templates, found.refused) == ("'1.5' is no whole number of GPUs", frozenset({"t"}), "")


def test_all_controllers_share_one_watch_of_pods_and_each_gets_its_own() -> None:
    api = FakeApi()
    informers, groups, seen = Informers(api), list[Key](), dict[str, list[str]]()
    for value in (
        made("agent", 0, namespace="gkm-system", node="n1", labels={"app.kubernetes.io/name": "gkm-agent"}),
        made("plain", 0, node="n1"),
        made("user", node="n1", template="t"),
        made("task", 0, phase="Succeeded", labels={"gkm.io/task-group": "g"}),
        made("waits", 0),
    ):
        api.create(RAW, value)
    nodes = NodeWatcher(api, lambda _key: None, informers=informers)
    plans = ClusterWatcher(api, PlanIndex(), Topology(), lambda: None, lambda: None, informers=informers)
    domains = DomainPods(informers, GPURequests(Network()))
    watcher = GroupWatcher(api, informers, groups.append)
    every = {"agents": nodes.reflectors[1], "plans": plans._pods, "domains": domains.watch, "groups": watcher.pods}
    try:
        for name, watch in every.items():
            assert isinstance(watch, Selection)
            watch.start()
            assert watch.synced.wait(scaled(10))
            open_now = [each for each in api._watches if each.resource.plural == "pods" and not each.closed]
            assert len(open_now) <= 1
            pods = reflector_of(watch).values()
            seen[name] = [pod.metadata.name for pod in pods if watch.get(pod.metadata.name, pod.metadata.namespace)]
        held = sorted(pod.metadata.name for pod in reflector_of(domains.watch).values())
    finally:
        domains.watch.close()
    assert {name: sorted(found) for name, found in seen.items()} == {
        "agents": ["agent"],
        "plans": ["agent", "plain", "user"],
        "domains": ["user"],
        "groups": ["task"],
    }
    assert held == ["agent", "plain", "task", "user"]
    assert groups == [("team", "g")]
