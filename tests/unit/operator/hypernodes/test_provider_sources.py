"""What the controllers make of a ProviderTree: the last good one counts, whatever comes, and its age is told."""

import math
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from gkm.api.meta import timestamp
from gkm.api.topology_status import ProviderState
from gkm.kube.resources import PROVIDER_TREES, Json
from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.provider_trees import pack
from gkm_operator.hypernodes.sources import HEARTBEAT_STALE_SECONDS, LastChange, ProviderSource
from support.kube.whole_objects import whole
from support.operator.nodes import put
from support.operator.topology import Process, World, settings

RAW = whole(PROVIDER_TREES)
NOW = 1_800_000_000.0


def leaf(name: str, *members: Member) -> HyperNode:
    return HyperNode(name, "block", members)


ONE = pack([leaf("one", Member("Node", "n1"))])
TWO = pack([leaf("two", Member("Node", "n1"), Member("Node", "n2"))])


def at(seconds: float) -> str:
    return timestamp(datetime.fromtimestamp(seconds, UTC))


class Watched:
    """A process with a provider in a pod, and what the pod writes."""

    def __init__(self) -> None:
        self.world = World({"n1": {}, "n2": {}}, settings(providers=[{"name": "acme"}]))
        self.now = NOW
        self.process = self.started()

    def started(self) -> Process:
        """Another process of the controllers."""
        process = self.world.process()
        self._source(process)._now = lambda: self.now
        return process

    def write(self, **spec: object) -> None:
        found: Json = {"state": "Serving", "heartbeatTime": at(self.now), "observedTime": at(self.now)} | spec
        value = {"apiVersion": RAW.api_version, "kind": "ProviderTree", "metadata": {"name": "acme"}, "spec": found}
        put(self.world.api, RAW, value)

    def read(self) -> ProviderSource:
        self.process.observe()
        source = self._source(self.process)
        source.refresh()
        return source

    def state(self) -> tuple[ProviderState, str]:
        report = self.read().report()
        return report.state, report.reason

    def groups(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        placed = self.read().placements
        for node, place in placed.places.items() if placed else ():
            found.setdefault(place[1], []).append(node)
        return found

    @staticmethod
    def _source(process: Process) -> ProviderSource:
        (source,) = process.controller.sources
        assert isinstance(source, ProviderSource)
        return source


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_tree_counts_when_its_provider_has_written_it(watched: Watched) -> None:
    state, reason = watched.state()
    assert (state, math.isnan(watched.read().lag())) == (ProviderState.STARTING, True)
    assert reason.startswith("has written no ProviderTree yet")
    watched.write(state="Starting", reason="waits for a survey")
    assert watched.state() == (ProviderState.STARTING, "waits for a survey")
    watched.write(revision=1, tree=ONE)
    assert watched.state() == (ProviderState.SERVING, "")
    assert watched.groups() == {"one": ["n1"]}
    watched.write(revision=2, tree=TWO)
    assert watched.groups() == {"two": ["n1", "n2"]}


def test_a_new_process_of_the_controllers_has_the_last_tree_at_once(watched: Watched) -> None:
    watched.write(revision=7, tree=TWO, state="Failed", reason="cannot read the HTTPS server in its url")
    watched.process = watched.started()
    assert watched.groups() == {"two": ["n1", "n2"]}
    assert watched.state() == (ProviderState.FAILED, "cannot read the HTTPS server in its url")


CYCLE = [leaf("one", Member("HyperNode", "two")), leaf("two", Member("HyperNode", "one"))]
WRONG: dict[str, tuple[str, str]] = {
    "no tree": ("secret-switch", "the packed tree is not compressed by zlib and in base64"),
    "cut off": (ONE[:40], "the packed tree is truncated"),
    "a cycle": (pack(CYCLE), "a HyperNode contains itself"),
    "two parents": (
        pack([leaf("a", Member("Node", "n1")), leaf("b", Member("Node", "n1"))]),
        "a member has two parents",
    ),
    "no member": (pack([leaf("a", Member("HyperNode", "secret-switch"))]), "a member does not exist"),
    "a control character": (pack([leaf("secret\x1b[31m")]), "an illegal name"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_tree_that_cannot_be_used_is_set_aside_and_the_last_good_one_counts_on(
    watched: Watched, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    tree, why = WRONG[case]
    watched.write(revision=1, tree=ONE)
    watched.read()
    watched.write(revision=2, tree=tree)
    state, reason = watched.state()
    assert state is ProviderState.FAILED
    assert reason.startswith(f"has a tree that is set aside, revision 2: {why}")
    assert watched.groups() == {"one": ["n1"]}
    assert "secret" not in reason + caplog.text
    watched.process.controller.replies.write()
    status = watched.world.api.get(PROVIDER_TREES, "acme").status
    (condition,) = status.conditions
    assert (status.observed_revision, condition.status, condition.reason) == (2, "False", "TreeSetAside")
    watched.write(revision=3, tree=TWO)
    assert watched.state() == (ProviderState.SERVING, "")
    assert watched.groups() == {"two": ["n1", "n2"]}


def test_an_accepted_tree_says_so(watched: Watched) -> None:
    watched.write(revision=3, tree=ONE)
    watched.read()
    watched.process.controller.replies.write()
    status = watched.world.api.get(PROVIDER_TREES, "acme").status
    (condition,) = status.conditions
    assert (status.observed_revision, condition.status, condition.reason) == (3, "True", "TreeAccepted")


def test_without_a_good_tree_nothing_is_written_at_all(watched: Watched) -> None:
    watched.write(revision=1, tree="x")
    watched.process.settle()
    assert watched.world.api.hypernodes() == {}
    assert "waits for acme" in watched.process.condition("ProvidersServing")["message"]


def test_an_object_that_is_deleted_takes_no_place_away(watched: Watched) -> None:
    watched.write(revision=1, tree=ONE)
    watched.read()
    watched.world.api.delete(PROVIDER_TREES, "acme")
    state, reason = watched.state()
    assert (state, watched.groups()) == (ProviderState.FAILED, {"one": ["n1"]})
    assert reason.startswith("has no ProviderTree any more")


def test_an_equal_revision_with_another_tree_is_read_too(watched: Watched) -> None:
    watched.write(revision=1, tree=ONE)
    watched.read()
    watched.write(revision=1, tree=TWO)
    assert watched.groups() == {"two": ["n1", "n2"]}


def test_a_pod_that_writes_nothing_any_more_is_stale_and_its_tree_counts_on(watched: Watched) -> None:
    watched.write(revision=1, tree=ONE)
    watched.read()
    watched.now += HEARTBEAT_STALE_SECONDS
    assert watched.state() == (ProviderState.SERVING, "")
    watched.now += 1
    state, reason = watched.state()
    assert (state, watched.groups()) == (ProviderState.STALE, {"one": ["n1"]})
    assert reason == f"has not written since {at(NOW)}: its pod may be gone; its last tree is still used"
    assert watched.process.condition("ProvidersServing")["reason"] == "ProviderFailed"
    watched.now += 60
    assert watched.state() == (state, reason), "the report changes only when the state does"
    watched.write(revision=1, tree=ONE)
    assert watched.state() == (ProviderState.SERVING, "")


def test_a_source_that_is_not_read_any_more_is_stale_after_its_time(watched: Watched) -> None:
    watched.write(revision=1, tree=ONE, staleSeconds=600)
    watched.read()
    for seconds, state in ((650, ProviderState.SERVING), (670, ProviderState.STALE)):
        watched.now = NOW + seconds
        watched.write(revision=1, tree=ONE, staleSeconds=600, observedTime=at(NOW))
        assert watched.state()[0] is state
        assert watched.read().lag() == seconds
    watched.write(revision=1, tree=ONE, staleSeconds=0, observedTime=at(NOW))
    assert watched.state()[0] is ProviderState.SERVING


def test_a_tree_from_before_the_start_of_the_controllers_has_its_true_age(watched: Watched) -> None:
    watched.write(revision=1, tree=ONE, heartbeatTime=at(NOW - 3_600), observedTime=at(NOW - 3_600))
    assert watched.state()[0] is ProviderState.STALE
    assert watched.read().lag() == 3_600


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (lambda: at(NOW - 5), NOW - 5),
        (lambda: at(NOW + 10**8), NOW),
        (lambda: "9999-12-31T23:59:59+00:00", NOW),
        (lambda: "soon", -math.inf),
        (lambda: None, -math.inf),
    ],
    ids=["past", "future", "the end of time", "no time", "missing"],
)
def test_no_time_of_another_machine_makes_data_newer_than_now(text: Callable[[], str | None], seconds: float) -> None:
    change = LastChange()
    change.observe(text(), NOW)
    assert change.at == seconds


def test_a_change_that_is_seen_is_one_of_now_whatever_the_other_clock_shows() -> None:
    change = LastChange()
    change.observe(at(NOW - 7_200), NOW)
    change.observe(at(NOW - 7_170), NOW + 30)
    assert change.at == NOW + 30


def test_a_tree_of_a_provider_that_is_not_configured_is_told_so(watched: Watched) -> None:
    value = {"apiVersion": RAW.api_version, "kind": "ProviderTree", "metadata": {"name": "forged"}}
    put(watched.world.api, RAW, value | {"spec": {"revision": 1, "tree": TWO}})
    watched.read()
    watched.process.controller.replies.write()
    (condition,) = watched.world.api.get(PROVIDER_TREES, "forged").status.conditions
    assert (condition.status, condition.reason) == ("False", "ProviderNotConfigured")
    assert watched.groups() == {}
