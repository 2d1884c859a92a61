"""HyperNodes beside those of others, labels of nodes, Topologies of Kueue and KAI; kinds that are not installed."""

from collections.abc import Callable, Collection
from functools import partial

import pytest
from gkm.kube.errors import ApiError
from gkm.kube.resources import (
    HYPERNODES,
    KAI_TOPOLOGIES,
    KUEUE_TOPOLOGIES,
    KUEUE_TOPOLOGIES_V1BETA2,
    NODES,
    Json,
    Resource,
)
from gkm_operator.hypernodes.writes.sinks import MAX_FAILURES
from support.kube.interposed_api import Around, Call, InterposedApi
from support.operator.topology import RAW_HYPERNODES, World, hypernode, racks, settings

SMALL = racks(1, 2, 2)
FIRST = {"node-0-0-0"}
LABELED = settings(hyperNodes={"enabled": False}, nodeLabels=True)
RAW_KUEUE: Resource[Json] = Resource(
    KUEUE_TOPOLOGIES_V1BETA2.api_version, "Topology", "topologies", namespaced=False, type=Json
)
RAW_KAI: Resource[Json] = Resource(KAI_TOPOLOGIES.api_version, "Topology", "topologies", namespaced=False, type=Json)
KEYS = ["level.gkm.io/block", "level.gkm.io/rack", "kubernetes.io/hostname"]


def levels(*keys: str) -> Json:
    return {"levels": [{"nodeLabel": key} for key in keys]}


def test_without_tier_names_in_the_kind_the_steady_state_writes_nothing() -> None:
    """Volcano before 1.14: its API server drops the field."""
    world = World(SMALL)

    def around(call: Call, send: object) -> object:
        assert callable(send)
        answer = send()
        if call.plural == "hypernodes" and call.verb == "create":
            world.api.merge(RAW_HYPERNODES, call.name, {"spec": {"tierName": None}})
            return world.api.get(HYPERNODES, call.name)
        return answer

    old = world.process(InterposedApi(world.api, around))
    old.observe()
    old.work()
    states = world.api.states
    world.process().settle()
    assert world.api.states == states


def test_node_labels_are_written_on_our_keys_only_and_removed_when_untrue() -> None:
    world = World(SMALL | {"cpu-1": {"level.gkm.io/rack": "stale", "kept": "yes"}}, LABELED)
    world.label("node-0-0-0", **{"level.gkm.io/old": "x", "other": "y"})
    world.process().settle()
    assert world.levels("node-0-0-0") == {"rack": "r0-0", "block": "b0"}
    assert world.api.get(NODES, "node-0-0-0")["metadata"]["labels"]["other"] == "y"
    own = world.levels("cpu-1")
    assert set(own) == {"rack", "block"}
    assert all(value.startswith("node-") for value in own.values())
    world.api.calls.clear()
    world.process().settle()
    assert [call for call in world.api.calls if call[0] == "merge"] == []


@pytest.mark.parametrize("status", [403, 500, 503, 504])
def test_a_node_whose_labels_are_refused_stops_no_other(status: int) -> None:
    world = World(SMALL, LABELED)
    process = world.process(InterposedApi(world.api, refusing_labels_of(ApiError(status, "", "a webhook"), FIRST)))
    process.observe()
    process.work()
    found = process.condition("NodeLabelsWritten")
    assert all(world.levels(name) for name in SMALL.keys() - FIRST), (
        "a webhook that fails for one node stops the others"
    )
    assert (found["reason"], found["message"].startswith("the API server refuses the labels of 1 node: ")) == (
        "WriteFailed",
        True,
    )


def test_nodes_for_which_a_webhook_fails_stop_no_other_whatever_their_number() -> None:
    nodes = racks(1, 2, MAX_FAILURES + 1)
    world = World(nodes, LABELED)
    failing = [name for name in nodes if name.startswith("node-0-0-")]
    process = world.process(InterposedApi(world.api, refusing_labels_of(ApiError(500, "", "a webhook"), failing)))
    process.observe()
    for _ in range(MAX_FAILURES):
        process.work()
    assert [name for name in nodes if not world.levels(name)] == failing, "nodes that fail keep others from their turn"


@pytest.mark.parametrize(("status", "most"), [(0, 1), (429, 1), (503, MAX_FAILURES)])
def test_an_api_server_that_is_away_ends_the_labels_of_nodes_after_few_requests(status: int, most: int) -> None:
    nodes = racks(1, 2, 2 * MAX_FAILURES)
    world = World(nodes, LABELED)
    sent: list[str] = []
    away = refusing_labels_of(ApiError(status, "", "away"), nodes, sent)
    process = world.process(InterposedApi(world.api, away))
    process.observe()
    assert [type(error) for error in process.work()] == [ApiError]
    assert len(sent) == most
    assert process.condition("NodeLabelsWritten")["reason"] == "WriteFailed"


def refusing_labels_of(refusal: ApiError, names: Collection[str], sent: list[str] | None = None) -> Around:
    """Refuse the labels of these nodes, and note the names of the nodes whose labels are sent."""

    def around(call: Call, send: Callable[[], object]) -> object:
        if (call.verb, call.plural) == ("merge", "nodes"):
            if sent is not None:
                sent.append(call.name)
            if call.name in names:
                raise refusal
        return send()

    return around


def test_a_missing_right_to_label_nodes_names_the_feature_after_one_request() -> None:
    world = World(SMALL, LABELED)
    refusal = (
        'nodes "cpu-1" is forbidden: User "gkm" cannot patch resource "nodes" in API group "" at the cluster scope'
    )
    sent: list[str] = []

    def around(call: Call, send: Callable[[], object]) -> object:
        if (call.verb, call.plural) == ("merge", "nodes"):
            sent.append(call.name)
            raise ApiError(403, "Forbidden", refusal)
        return send()

    process = world.process(InterposedApi(world.api, around))
    process.settle()
    found = process.condition("NodeLabelsWritten")
    assert found["reason"] == "RightsMissing"
    assert "set features.topologyLabels=true in the Helm chart" in found["message"]
    assert len(sent) == 1


def test_a_node_gets_the_labels_of_the_tree_that_is_newest_when_its_request_is_sent() -> None:
    world = World(SMALL, LABELED)
    sent: list[str] = []
    moved: list[str] = []

    def around(call: Call, send: Callable[[], object]) -> object:
        if (call.verb, call.plural) == ("merge", "nodes"):
            sent.append(call.name)
            if len(sent) == 1:
                moved.append(other_than(call.name))
                world.label(moved[0], rack="r0-0")
                process.observe()
                process.controller.sources[0].refresh()
                process.controller.tree.reconcile(process.seconds)
        return send()

    process = world.process(InterposedApi(world.api, around))
    process.observe()
    assert process.work() == []
    assert (len(sent), world.levels(moved[0])) == (4, {"rack": "r0-0", "block": "b0"})


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_node_that_is_created_anew_elsewhere_during_a_pass_gets_no_label_of_its_old_place(*, is_seen: bool) -> None:
    world = World(SMALL, LABELED)
    sent: list[str] = []
    moved: list[str] = []

    def around(call: Call, send: Callable[[], object]) -> object:
        if (call.verb, call.plural) == ("merge", "nodes"):
            sent.append(call.name)
            if len(sent) == 1:
                moved.append(other_than(call.name))
                world.remove(moved[0])
                world.add(moved[0], {"rack": "r0-0", "block": "b0"})
                if is_seen:
                    process.observe()
        return send()

    process = world.process(InterposedApi(world.api, around))
    process.observe()
    assert [str(error) for error in process.work()] == ["1 node changed meanwhile"]
    assert world.levels(moved[0]) == {}
    process.settle()
    assert world.levels(moved[0]) == {"rack": "r0-0", "block": "b0"}


def other_than(name: str) -> str:
    """A node of the second rack whose labels have not been sent yet; nodes have no order."""
    return "node-0-1-0" if name == "node-0-1-1" else "node-0-1-1"


@pytest.mark.parametrize(("name", "resource"), [("kueue", RAW_KUEUE), ("kai", RAW_KAI)])
def test_a_topology_has_the_levels_from_the_widest_to_the_closest_and_is_written_once(
    name: str, resource: Resource[Json]
) -> None:
    world = World(SMALL, settings(hyperNodes={"enabled": False}, nodeLabels=True, **{name: "gpus"}))
    world.process().settle()
    found = world.api.get(resource, "gpus")
    assert found["spec"] == levels(*KEYS)
    version = found["metadata"]["resourceVersion"]
    world.process().settle()
    assert world.api.get(resource, "gpus")["metadata"]["resourceVersion"] == version


@pytest.mark.parametrize("served", [[KUEUE_TOPOLOGIES, KUEUE_TOPOLOGIES_V1BETA2], [KUEUE_TOPOLOGIES]], ids=len)
def test_the_older_version_of_kueue_is_written_only_where_there_is_no_newer(served: list[Resource[Json]]) -> None:
    world = World(SMALL, settings(hyperNodes={"enabled": False}, nodeLabels=True, kueue="gpus"))
    base = {("v1", "nodes"), ("v1", "configmaps"), ("events.k8s.io/v1", "events")}
    world.api.served = base | {(kind.api_version, kind.plural) for kind in served}
    world.process().settle()
    (written,) = world.api.stored("topologies")
    assert written["apiVersion"] == served[-1].api_version


def test_the_aliases_that_people_gave_to_levels_stay_when_levels_change() -> None:
    world = World(SMALL, settings(hyperNodes={"enabled": False}, nodeLabels=True, kai="gpus"))
    world.process().settle()
    given = [{"nodeLabel": key, "alias": key.rpartition("/")[2]} for key in KEYS]
    world.api.merge(RAW_KAI, "gpus", {"spec": {"levels": given}})
    world.process().settle()
    assert world.api.get(RAW_KAI, "gpus")["spec"] == {"levels": given}
    one = [{"name": "rack", "keys": ["rack"]}]
    world.config = settings(hyperNodes={"enabled": False}, nodeLabels=True, kai="gpus", levels=one)
    world.process().settle()
    assert world.api.get(RAW_KAI, "gpus")["spec"] == {"levels": given[1:]}


def test_a_topology_of_others_is_not_changed_and_the_report_has_the_remedy() -> None:
    world = World(SMALL, settings(nodeLabels=True, kueue="gpus"))
    made = {"apiVersion": RAW_KUEUE.api_version, "kind": "Topology", "metadata": {"name": "gpus"}}
    world.api.create(RAW_KUEUE, made | {"spec": levels("rack")})
    process = world.process()
    process.settle()
    assert world.api.get(RAW_KUEUE, "gpus")["spec"] == levels("rack")
    condition = process.condition("KueueTopologyWritten")
    assert (condition["status"], condition["reason"]) == ("False", "TopologyBlocked")
    assert "kubectl delete topologies.kueue.x-k8s.io gpus" in condition["message"]


def test_levels_that_cannot_be_changed_are_reported_with_the_command_that_deletes_the_topology() -> None:
    world = World(SMALL, settings(nodeLabels=True, kueue="gpus"))
    world.process().settle()
    world.config = settings(nodeLabels=True, kueue="gpus", levels=[{"name": "rack", "keys": ["rack"]}])
    world.api.fault = lambda verb, plural: (
        ApiError(422, "Invalid", "immutable") if (verb, plural) == ("merge", "topologies") else None
    )
    process = world.process()
    process.settle()
    assert "cannot be changed; delete it" in process.condition("KueueTopologyWritten")["message"]
    world.api.fault = lambda _verb, _plural: None
    process.settle()
    assert world.api.get(RAW_KUEUE, "gpus")["spec"] == levels("level.gkm.io/rack", "kubernetes.io/hostname")
    assert process.condition("KueueTopologyWritten")["reason"] == "UpToDate"


def test_a_kind_that_is_missing_is_waited_for_and_stops_no_other() -> None:
    world = World(SMALL, settings(nodeLabels=True, kueue="gpus"))
    world.api.served = {("v1", "nodes"), ("v1", "configmaps"), ("events.k8s.io/v1", "events")}
    process = world.process()
    process.settle()
    assert world.levels("node-0-0-0")["rack"] == "r0-0"
    for condition, product in (("HyperNodesWritten", "Volcano"), ("KueueTopologyWritten", "Kueue")):
        found = process.condition(condition)
        assert (found["reason"], found["message"].endswith(f"install {product}")) == ("KindMissing", True)
    world.api.served = None
    process.settle()
    assert world.place("node-0-0-0") == {"rack": "rack-r0-0", "block": "block-b0"}
    assert process.condition("HyperNodesWritten")["status"] == "True"


def test_rights_that_are_missing_are_reported_with_the_component_that_has_them() -> None:
    world = World(SMALL)
    world.api.fault = lambda verb, plural: (
        ApiError(403, "Forbidden", "may not list hypernodes") if (verb, plural) == ("list", "hypernodes") else None
    )
    process = world.process()
    process.settle()
    found = process.condition("HyperNodesWritten")
    assert (found["reason"], "apply components/topology of" in found["message"]) == ("RightsMissing", True)


def test_a_right_that_is_missing_is_reported_until_a_write_succeeds() -> None:
    """The controllers check every 30 seconds whether the kind is there."""
    world = World(SMALL, settings(hyperNodes={"enabled": False}, nodeLabels=True, kueue="gpus"))
    forbidden = ApiError(403, "Forbidden", "may not create topologies")
    world.api.fault = lambda verb, plural: forbidden if (verb, plural) == ("create", "topologies") else None
    process = world.process()
    process.observe()
    process.work()
    assert process.condition("KueueTopologyWritten")["reason"] == "RightsMissing"
    process.observe()
    assert process.condition("KueueTopologyWritten")["reason"] == "RightsMissing", (
        "a check of the kind hides the missing right, and the report is written twice for each check"
    )


def test_without_a_feature_nothing_is_watched_and_no_request_is_sent() -> None:
    world = World(SMALL, settings(hyperNodes={"enabled": False}))
    world.api.calls.clear()
    controller = world.process().controller
    assert not controller.enabled
    controller.work()
    controller.close()
    assert world.api.calls == []


def test_nothing_counts_as_written_before_a_tree_is_approved() -> None:
    """A new process finds the guard tripped: it has compared nothing."""
    world = World(SMALL, settings(guard={"percent": 20, "minimum": 1, "rounds": 3, "intervalSeconds": 60}))
    world.process().settle()
    for name in SMALL:
        world.label(name, rack=None, block=None)
    process = world.process()
    process.settle()
    found = process.condition("HyperNodesWritten")
    assert (found["status"], found["reason"]) == ("False", "NotChecked")


def test_a_kueue_with_the_next_version_only_gets_it() -> None:
    world = World(SMALL, settings(hyperNodes={"enabled": False}, nodeLabels=True, kueue="gpus"))
    world.api.served = {("kueue.x-k8s.io/v1beta2", "topologies"), ("v1", "nodes"), ("v1", "configmaps")}
    process = world.process()
    process.settle()
    world.api.served = None
    assert world.api.get(RAW_KUEUE, "gpus")["apiVersion"] == "kueue.x-k8s.io/v1beta2"
    assert process.condition("KueueTopologyWritten")["reason"] == "UpToDate"


@pytest.mark.parametrize("status", [500, 503])
def test_a_kind_that_fails_stops_no_other(status: int) -> None:
    world = World(SMALL, settings(nodeLabels=True, kueue="gpus"))
    world.api.fault = lambda _verb, plural: (
        ApiError(status, "InternalError", "the conversion webhook is away") if plural == "topologies" else None
    )
    process = world.process()
    process.settle()
    assert world.place("node-0-0-0") == {"rack": "rack-r0-0", "block": "block-b0"}
    assert world.levels("node-0-0-0") == {"rack": "r0-0", "block": "b0"}
    found = process.condition("KueueTopologyWritten")
    assert (found["reason"], "the conversion webhook is away" in found["message"]) == ("WriteFailed", True)


def test_no_name_of_a_hypernode_stands_in_logs_and_events(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    world = World(SMALL)
    world.api.create(RAW_HYPERNODES, hypernode("rack-r0-1", 1, nodes=["elsewhere"]))

    def failing(status: int, call: Call, send: Callable[[], object]) -> object:
        if call.writes and call.name == "rack-r0-0":
            raise ApiError(status, "Invalid", 'HyperNode "rack-r0-0" is invalid')
        return send()

    for status in (422, 409, 500):
        process = world.process(InterposedApi(world.api, partial(failing, status)))
        process.observe()
        errors = process.work()
        process.report()
        shown = [str(error) for error in errors] + [str(vars(record)) for record in caplog.records]
        assert not [text for text in shown + [note for _, _, note in world.events()] if "rack-r0" in text]
        assert "HyperNode" in process.condition("HyperNodesWritten")["message"]
