"""HyperNodes that the API server refuses: the others are written, and the provider of the domain gets a reply."""

from collections.abc import Callable, Sequence

import pytest
from gkm.kube.errors import ApiError
from gkm.kube.resources import PROVIDER_TREES
from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.provider_trees import pack
from gkm_operator.hypernodes.writes.hypernodes import FAILED_SECONDS, MAX_REFUSED, REFUSED_SECONDS
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.kube.interposed_api import Call, InterposedApi
from support.kube.whole_objects import whole
from support.operator.nodes import put
from support.operator.topology import World, racks
from support.operator.topology import settings as unguarded

RAW_TREES = whole(PROVIDER_TREES)
DENIED = ApiError(403, "Forbidden", "a webhook denied the request")
FAILED = ApiError(500, "InternalError", 'Internal error occurred: failed calling webhook "v.example": no endpoints')
NOT_READY = ApiError(503, "ServiceUnavailable", 'admission webhook "v.example" denied the request: not ready')


def test_a_refused_domain_stops_no_other_and_the_tree_of_its_provider_says_so() -> None:
    providers = [{"name": name} for name in ("labels", "ufm", "lldp")]
    world = World(racks(2, 2, 2), unguarded(providers=providers))
    for name, rack in (("ufm", "r0-1"), ("lldp", "r0-0")):
        tree = pack([HyperNode(rack, "rack", (Member("Node", f"node-{rack[1:]}-0"),))])
        spec = {"state": "Serving", "revision": 4, "tree": tree}
        put(world.api, RAW_TREES, {"metadata": {"name": name}, "spec": spec})
    process = world.process(InterposedApi(world.api, refusing("rack-r0-1")))
    process.settle()
    process.controller.replies.write()
    assert world.place("node-0-0-0") == {"rack": "rack-r0-0", "block": "block-b0"}
    assert world.place("node-1-1-1") == {"rack": "rack-r1-1", "block": "block-b1"}
    assert world.place("node-0-1-0") == {}
    refused = {name: world.api.get(PROVIDER_TREES, name).status for name in ("ufm", "lldp")}
    (entry,) = refused["ufm"].refused
    assert (entry.name, refused["ufm"].observed_revision, refused["lldp"].refused) == ("r0-1", 4, [])
    assert "a webhook denied the request" in entry.error
    found = process.condition("HyperNodesWritten")
    assert (found["reason"], "rack-r0-1: a webhook denied" in found["message"]) == ("HyperNodeRefused", True)
    assert world.api.violations == []
    process.observe()
    calls = len(world.api.calls)
    process.controller.replies.write()
    assert world.api.calls[calls:] == [], "what is written already is not written again"


def test_a_status_says_when_nothing_is_refused_any_more() -> None:
    world = World(racks(1, 2, 2), unguarded(providers=[{"name": "labels"}, {"name": "ufm"}]))
    tree = pack([HyperNode("r0-1", "rack", (Member("Node", "node-0-1-0"),))])
    put(world.api, RAW_TREES, {"metadata": {"name": "ufm"}, "spec": {"revision": 1, "tree": tree}})
    process = world.process(InterposedApi(world.api, refusing("rack-r0-1", times=1)))
    now = [0.0]
    process.controller.writer._clock = lambda: now[0]
    seen = []
    for now[0] in (0.0, REFUSED_SECONDS):
        process.settle()
        process.controller.replies.write()
        seen.append([one.name for one in world.api.get(PROVIDER_TREES, "ufm").status.refused])
    assert seen == [["r0-1"], []]


def test_a_status_names_what_is_refused_now_also_for_a_new_revision() -> None:
    world = World(racks(1, 3, 1), unguarded(providers=[{"name": "labels"}, {"name": "ufm"}]))
    tree = pack([HyperNode(f"r0-{rack}", "rack", (Member("Node", f"node-0-{rack}-0"),)) for rack in range(2)])
    put(world.api, RAW_TREES, {"metadata": {"name": "ufm"}, "spec": {"revision": 1, "tree": tree}})
    always, once = refusing("rack-r0-0"), refusing("rack-r0-1", times=1)
    process = world.process(InterposedApi(world.api, lambda call, send: always(call, lambda: once(call, send))))
    now = [0.0]
    process.controller.writer._clock = lambda: now[0]
    seen = []
    for revision, now[0] in ((1, 0.0), (2, 1.0), (3, REFUSED_SECONDS)):
        world.api.merge(RAW_TREES, "ufm", {"spec": {"revision": revision}})
        process.settle()
        process.controller.replies.write()
        status = world.api.get(PROVIDER_TREES, "ufm").status
        seen.append((status.observed_revision, [one.name for one in status.refused]))
    assert seen == [(1, ["r0-0", "r0-1"]), (2, ["r0-0", "r0-1"]), (3, ["r0-0"])], (
        "a status calls a HyperNode written that is not, or refused that is written"
    )


@pytest.mark.parametrize(("status", "answered"), [(403, ["ufm"]), (500, ["ufm"]), (503, ["ufm"]), (0, [])])
def test_a_provider_whose_status_is_refused_stops_no_other_unless_the_api_server_is_away(
    status: int, answered: list[str]
) -> None:
    world = World(racks(1, 2, 1), unguarded(providers=[{"name": name} for name in ("labels", "ufm", "lldp")]))
    for name in ("ufm", "lldp"):
        put(world.api, RAW_TREES, {"metadata": {"name": name}, "spec": {"revision": 1, "tree": pack([])}})
    refuse = refusing("lldp", error=ApiError(status, "", "not this one"), plural="providertrees")
    process = world.process(InterposedApi(world.api, refuse))
    process.observe()
    process.work()
    with pytest.raises(ApiError, match="not this one"):
        process.controller.replies.write()
    written = [name for name in ("ufm", "lldp") if world.api.get(PROVIDER_TREES, name).status.observed_revision]
    assert written == answered, "a status that is refused keeps another provider from its reply"


def test_an_update_that_is_refused_leaves_the_object_and_the_others_are_valid_beside_it() -> None:
    world = World(racks(2, 2, 2))
    world.process().settle()
    before = world.api.hypernodes()["block-b0"]
    for number in range(2):
        world.label(f"node-0-0-{number}", block="b1")
    world.add("node-new", {"rack": "r-new", "block": "b1"})
    process = world.process(InterposedApi(world.api, refusing("block-b0")))
    process.settle()
    written = world.api.hypernodes()
    assert written["block-b0"] == before
    assert Member("HyperNode", "rack-r-new") in written["block-b1"].members
    assert Member("HyperNode", "rack-r0-0") not in written["block-b1"].members
    assert world.api.violations == []


def test_a_node_of_a_rack_that_may_not_change_is_in_no_second_one_and_the_rack_stays_in_its_block() -> None:
    world = World(racks(2, 2, 3))
    world.process().settle()
    world.label("node-0-0-2", rack="r0-1")
    world.process(InterposedApi(world.api, refusing("rack-r0-0"))).settle()
    assert world.place("node-0-0-2") == {"rack": "rack-r0-0", "block": "block-b0"}
    assert world.place("node-0-0-0") == {"rack": "rack-r0-0", "block": "block-b0"}
    assert world.api.violations == []


def test_nodes_of_a_rack_that_may_not_be_deleted_are_in_no_second_one() -> None:
    world = World(racks(1, 2, 2))
    world.process().settle()
    for number in range(2):
        world.label(f"node-0-0-{number}", rack="r0-1")
    process = world.process(InterposedApi(world.api, refusing("rack-r0-0", verbs=("delete",))))
    process.settle()
    assert "rack-r0-0" in world.api.hypernodes()
    assert world.api.violations == []
    world.process().settle()
    for node in ("node-0-0-0", "node-0-1-0"):
        assert world.place(node) == {"rack": "rack-r0-1", "block": "block-b0"}


NAMES = [*(f"rack-r{block}-{rack}" for block in range(2) for rack in range(2)), "block-b0", "block-b1"]
MOVES = st.dictionaries(
    st.sampled_from(sorted(racks(2, 2, 2))),
    st.tuples(st.sampled_from(["r0-0", "r0-1", "r1-0", "r1-1", None]), st.sampled_from(["b0", "b1", None])),
)


@settings(max_examples=examples(60))
@given(MOVES, st.sets(st.tuples(st.sampled_from(["create", "merge", "delete"]), st.sampled_from(NAMES))))
def test_whatever_is_refused_every_write_leaves_a_valid_tree(
    moves: dict[str, tuple[str | None, str | None]], refused: set[tuple[str, str]]
) -> None:
    def around(call: Call, send: Callable[[], object]) -> object:
        if call.plural == "hypernodes" and (call.verb, call.name) in refused:
            raise ApiError(422, "Invalid", "a webhook denied the request")
        return send()

    world, plain = (World(racks(2, 2, 2), unguarded(guard={"percent": 100, "minimum": 1000})) for _ in range(2))
    world.process().settle()
    for each in (world, plain):
        for name, (rack, block) in moves.items():
            each.label(name, rack=rack, block=block)
    world.process(InterposedApi(world.api, around)).settle(60)
    assert world.api.violations == []
    world.process().settle()
    plain.process().settle()
    assert (world.api.violations, world.api.hypernodes()) == ([], plain.api.hypernodes())


def test_a_refused_hypernode_is_tried_again_after_a_while() -> None:
    world = World(racks(1, 2, 2))
    process = world.process(InterposedApi(world.api, refusing("rack-r0-1", times=1)))
    now = [0.0]
    process.controller.writer._clock = lambda: now[0]
    for seconds, written in ((0.0, False), (REFUSED_SECONDS - 1, False), (REFUSED_SECONDS, True)):
        now[0] = seconds
        process.settle()
        assert ("rack-r0-1" in world.api.hypernodes()) is written


def test_a_refused_hypernode_is_tried_again_when_another_one_of_its_name_is_wanted() -> None:
    world = World(racks(1, 2, 2))
    process = world.process(InterposedApi(world.api, refusing("rack-r0-1", times=1)))
    process.settle()
    world.label("node-0-0-0", rack="r0-1")
    process.settle()
    assert world.place("node-0-0-0") == {"rack": "rack-r0-1", "block": "block-b0"}


@pytest.mark.parametrize("failure", [FAILED, NOT_READY], ids=lambda error: str(error.reason))
@pytest.mark.parametrize("name", ["rack-r0-0", "rack-r0-1"])
def test_a_webhook_that_fails_for_one_hypernode_stops_no_other_and_is_asked_again_soon(
    name: str, failure: ApiError
) -> None:
    world = World(racks(2, 2, 2))
    process = world.process(InterposedApi(world.api, refusing(name, times=1, error=failure)))
    now = [0.0]
    process.controller.writer._clock = lambda: now[0]
    process.observe()
    process.work()
    assert world.api.hypernodes().keys() == set(NAMES) - {name}, "a webhook that fails for one HyperNode stops others"
    assert process.controller.writer.is_quiet, "a request that the API server has answered counts as one on its way"
    assert process.condition("HyperNodesWritten")["reason"] == "HyperNodeRefused"
    now[0] = FAILED_SECONDS
    process.settle()
    assert world.api.hypernodes().keys() == set(NAMES)
    assert world.api.violations == []


def test_an_error_of_the_api_server_itself_ends_the_pass_and_its_request_may_still_arrive() -> None:
    world = World(racks(2, 2, 2))
    timeout = ApiError(500, "", "etcdserver: request timed out")
    process = world.process(InterposedApi(world.api, refusing("rack-r0-0", error=timeout)))
    process.observe()
    assert [type(error) for error in process.work()] == [ApiError]
    assert not process.controller.writer.is_quiet
    assert process.controller.writer.refusals == {}


@pytest.mark.parametrize(("error", "reason"), [(DENIED, "RightsMissing"), (FAILED, "WriteFailed")])
def test_where_everything_is_refused_the_requests_are_few(error: ApiError, reason: str) -> None:
    world = World(racks(5, 5, 1))
    seen: list[Call] = []
    refuse = refusing("", error=error)

    def around(call: Call, send: Callable[[], object]) -> object:
        seen.append(call)
        return refuse(call, send)

    process = world.process(InterposedApi(world.api, around))
    process.observe()
    for _ in range(3):
        process.work()
    assert len(process.controller.writer.refusals) == MAX_REFUSED
    assert len([call for call in seen if call.writes]) == MAX_REFUSED + 3
    assert process.condition("HyperNodesWritten")["reason"] == reason


def test_a_node_whose_name_volcano_refuses_is_left_out_and_reported() -> None:
    long = "n" * 64
    world = World(racks(1, 1, 2) | {long: {"rack": "r0-0", "block": "b0"}})
    process = world.process()
    process.settle()
    assert world.place(long) == {}
    assert world.place("node-0-0-0") == {"rack": "rack-r0-0", "block": "block-b0"}
    assert process.condition("HyperNodesWritten")["reason"] == "NodeNameTooLong"


def refusing(
    name: str,
    times: int = 1 << 30,
    verbs: Sequence[str] = ("create", "merge", "delete"),
    error: ApiError = DENIED,
    plural: str = "hypernodes",
) -> Callable[[Call, Callable[[], object]], object]:
    """Refuse so many writes of an object; of all without a name."""
    left = iter(range(times))

    def around(call: Call, send: Callable[[], object]) -> object:
        concerns = call.plural == plural and call.verb in verbs and name in ("", call.name)
        if concerns and next(left, None) is not None:
            raise error
        return send()

    return around
