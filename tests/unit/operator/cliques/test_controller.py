"""The built-in controllers with their watches and threads: what starts a pass, and what forbids one."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from gkm.api.config import Config
from gkm.hoststate.pacing import Backoff
from gkm.kube.errors import ApiError
from gkm.kube.resources import Resource
from gkm_operator.cliques.controller import CliquesController
from gkm_operator.cliques.grove_operator import BuiltInControllersBlocked, GroveOperatorPresent
from support.grove.driver import CLIQUES, GROUPS, PODS, SETS
from support.grove.objects import NAMESPACE
from support.host.waiting import until
from support.kube.fake_api import FakeApi
from support.operator.cliques import ON, WEBHOOKS, a_set, differences, observed

Json = dict[str, Any]
ROLES: Resource[Json] = Resource(
    "rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", namespaced=False, type=dict
)
WEBHOOK, ROLE = "podcliqueset-defaulting-webhook", "grove:system:grove-operator"


class Running:
    """The controllers in threads, over an API in memory."""

    def __init__(self, config: Config = ON) -> None:
        self.api = FakeApi()
        self.leads = True
        self.controller = CliquesController(
            self.api, config, leads=lambda: self.leads, backoff=Backoff(0.01, 0.02), calm=0.01
        )

    def until(self, good: Callable[[], bool], what: str) -> None:
        try:
            until(good, what)
        except TimeoutError as late:
            raise AssertionError(f"{late}: {differences(self.api)}") from late

    def until_done(self, pods: int) -> None:
        self.until(lambda: len(observed(self.api, PODS)) == pods and differences(self.api) == [], f"{pods} pods")

    @property
    def seen_replicas(self) -> int:
        found = self.controller._parents["PodCliqueSet"].get("set", NAMESPACE)
        return int(found.spec.replicas) if found else 0

    def writes(self) -> list[tuple[str, str, str]]:
        return [call for call in self.api.calls if call[0] in {"create", "merge", "apply", "delete"}]


@pytest.fixture
def running() -> Iterator[Running]:
    one = Running()
    yield one
    one.controller.close()


def put_trace(api: FakeApi, resource: Resource[Json], name: str) -> None:
    api.create(resource, {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}})


def test_each_change_of_a_watch_leads_to_the_required_pods(running: Running) -> None:
    running.controller.work()
    running.api.create(SETS, a_set())
    running.until_done(8)
    running.api.merge(SETS, "set", {"spec": {"replicas": 2}}, NAMESPACE)
    running.until_done(16)
    running.api.merge(GROUPS, "set-1-decode", {"spec": {"replicas": 1}}, NAMESPACE)
    running.until(lambda: len(observed(running.api, CLIQUES)) == 8, "a scaling group to be smaller")
    running.api.merge(CLIQUES, "set-0-router", {"spec": {"replicas": 3}}, NAMESPACE)
    running.until(lambda: "set-0-router-2" in observed(running.api, PODS), "a clique to be larger")
    cliques = running.api.get(SETS, "set", NAMESPACE)["spec"]["template"]["cliques"]
    cliques[2]["spec"]["podSpec"]["containers"][0]["image"] = "registry.test/app:2"
    running.api.merge(SETS, "set", {"spec": {"template": {"cliques": cliques}}}, NAMESPACE)
    worker = "set-0-decode-0-worker-0"
    running.until(
        lambda: (
            observed(running.api, PODS).get(worker, {}).get("spec", {}).get("containers", [{}])[0].get("image")
            == "registry.test/app:2"
        ),
        "the template of a scaling group to reach its pods",
    )
    running.api.delete(PODS, "set-0-router-0", NAMESPACE)
    running.until(lambda: "set-0-router-0" in observed(running.api, PODS), "a deleted pod to be made anew")


def test_a_refused_clique_is_tried_again(running: Running) -> None:
    refusals = iter([ApiError(403, "Forbidden", "no domain yet")] * 3)
    running.api.fault = lambda verb, plural: (
        next(refusals, None) if (verb, plural) == ("create", "podcliques") else None
    )
    running.api.create(SETS, a_set())
    running.controller.work()
    running.until_done(8)


@pytest.mark.parametrize(("resource", "name"), [(WEBHOOKS, WEBHOOK), (ROLES, ROLE)], ids=["webhook", "role"])
def test_they_stop_when_the_grove_operator_appears_and_continue_when_it_goes(
    running: Running, resource: Resource[Json], name: str
) -> None:
    running.api.create(SETS, a_set())
    running.controller.work()
    running.until_done(8)
    running.until(lambda: running.controller.queue.idle, "the status to be written")
    put_trace(running.api, resource, name)
    events: Resource[Json] = Resource("events.k8s.io/v1", "Event", "events", namespaced=True, type=dict)
    running.until(lambda: bool(observed(running.api, events)), "an event")
    (event,) = observed(running.api, events).values()
    assert (event["reason"], event["regarding"]["kind"], event["regarding"]["name"]) == (
        "BuiltInControllersStopped",
        "PodCliqueSet",
        "set",
    )
    running.api.calls.clear()
    running.api.merge(SETS, "set", {"spec": {"replicas": 2}}, NAMESPACE)
    running.api.delete(PODS, "set-0-router-0", NAMESPACE)
    running.until(lambda: running.seen_replicas == 2, "the watch to show the change")
    running.until(lambda: running.controller.queue.idle, "the queue to be empty")
    # Apart from the two above, there are at most Events.
    assert {plural for _, plural, _ in running.writes()[2:]} <= {"events"}
    running.api.delete(resource, name)
    running.until_done(16)


def test_other_webhooks_and_roles_do_not_stop_them(running: Running) -> None:
    put_trace(running.api, WEBHOOKS, "other")
    put_trace(running.api, ROLES, "cluster-admin")
    running.controller.check()
    running.api.create(SETS, a_set())
    running.controller.work()
    running.until_done(8)


def test_a_process_that_does_not_lead_any_more_writes_nothing(running: Running) -> None:
    running.leads = False
    running.api.create(SETS, a_set())
    running.api.calls.clear()
    running.controller.work()
    running.until(lambda: len(running.controller.queue) > 0, "a refused pass")
    assert running.writes() == []
    running.leads = True
    running.until_done(8)


def test_a_set_that_cannot_be_read_does_not_stop_another(running: Running) -> None:
    bad = a_set()
    bad["metadata"]["name"] = "bad"
    bad["spec"]["replicas"] = "three"
    running.api.create(SETS, bad)
    running.api.create(SETS, a_set())
    running.controller.work()
    running.until(lambda: len(observed(running.api, PODS)) == 8, "the pods of the other")


@pytest.mark.parametrize(("resource", "name"), [(WEBHOOKS, WEBHOOK), (ROLES, ROLE)], ids=["webhook", "role"])
def test_they_are_refused_beside_the_grove_operator(running: Running, resource: Resource[Json], name: str) -> None:
    running.controller.check()
    put_trace(running.api, resource, name)
    with pytest.raises(GroveOperatorPresent, match=f"{resource.kind} {name} exists.*: switch it off in gkm-config"):
        running.controller.check()


@pytest.mark.parametrize("status", [403, 404])
@pytest.mark.parametrize("plural", ["clusterroles", "podcliquesets", "podcliques", "podcliquescalinggroups", "pods"])
def test_they_are_refused_without_rights_or_kinds(running: Running, plural: str, status: int) -> None:
    running.api.fault = lambda _verb, asked: ApiError(status, "", "not so") if asked == plural else None
    with pytest.raises(BuiltInControllersBlocked, match=rf"{plural} cannot be listed \(not so\): apply Grove's"):
        running.controller.check()


def test_an_api_server_that_is_away_is_no_reason_to_refuse_them(running: Running) -> None:
    running.api.fault = lambda _verb, _plural: ApiError(0, "Unreachable", "away")
    with pytest.raises(ApiError, match="away"):
        running.controller.check()


def test_switched_off_they_send_no_request() -> None:
    running = Running(Config())
    put_trace(running.api, WEBHOOKS, WEBHOOK)
    running.api.calls.clear()
    running.controller.check()
    running.controller.work()
    running.controller.close()
    assert running.api.calls == []
