"""Each state of the topology has a reason: in the ConfigMap gkm-topology, and in its Events."""

from collections.abc import Callable

import pytest
from gkm.api.topology_settings import TopologyGuard
from gkm.api.topology_status import ProviderState, ProviderStatus, TopologyReason
from gkm.kube.errors import ApiError
from gkm.kube.resources import HYPERNODES
from gkm.kube.workqueue import Retry
from gkm.topology.trees.conflicts import Conflict, ConflictKind
from gkm.topology.trees.guard import GuardState, Losses
from gkm_operator.hypernodes import findings
from gkm_operator.hypernodes.findings import Blocked, PartFinding
from gkm_operator.hypernodes.writes.sinks import TreeSink
from support.kube.fake_api import FakeApi

LOST = Losses(10, frozenset("ab"))
GUARD = TopologyGuard()
FAILED = ProviderStatus("ufm", ProviderState.FAILED, reason="exited with status 7")
SERVING = ProviderStatus("labels", ProviderState.SERVING)
TRIPPED = GuardState(losses=LOST, rounds=2)


def sink(write: Callable[[], object], *, served: bool = True, fault: ApiError | None = None) -> PartFinding:
    """What a sink reports after a look and an attempt to write."""
    api = FakeApi()
    api.served = None if served else set()
    api.fault = lambda _verb, _plural: fault
    made = TreeSink("x", "Written", lambda _kind: write(), [HYPERNODES], "Volcano")
    made.check(api)
    try:
        made.reconcile()
    except (ApiError, Retry):
        assert not made.finding.good
    return made.finding


def raising(error: Exception) -> Callable[[], object]:
    def write() -> object:
        raise error

    return write


CASES: dict[TopologyReason, Callable[[], PartFinding]] = {
    TopologyReason.PROVIDERS_SERVING: lambda: findings.of_providers([SERVING], []),
    TopologyReason.PROVIDERS_STARTING: lambda: findings.of_providers([SERVING], ["ufm"]),
    TopologyReason.PROVIDER_FAILED: lambda: findings.of_providers([SERVING, FAILED], ["ufm"]),
    TopologyReason.NOT_CHECKED: lambda: findings.of_guard(GuardState(), GUARD, built=False),
    TopologyReason.TREE_APPROVED: lambda: findings.of_guard(GuardState(), GUARD, built=True),
    TopologyReason.GUARD_TRIPPED: lambda: findings.of_guard(TRIPPED, GUARD, built=True),
    TopologyReason.UP_TO_DATE: lambda: sink(lambda: None),
    TopologyReason.WRITING: lambda: sink(raising(Retry("HyperNode x has changed meanwhile"))),
    TopologyReason.KIND_MISSING: lambda: sink(lambda: None, served=False),
    TopologyReason.RIGHTS_MISSING: lambda: sink(lambda: None, fault=ApiError(403, "Forbidden", "may not list")),
    TopologyReason.WRITE_FAILED: lambda: sink(raising(ApiError(500, "InternalError", "etcd is away"))),
    TopologyReason.TOPOLOGY_BLOCKED: lambda: sink(raising(Blocked(TopologyReason.TOPOLOGY_BLOCKED, "x"))),
    TopologyReason.TOO_LARGE: lambda: sink(raising(Blocked(TopologyReason.TOO_LARGE, "x"))),
    TopologyReason.HYPERNODE_REFUSED: lambda: sink(raising(Blocked(TopologyReason.HYPERNODE_REFUSED, "x"))),
    TopologyReason.NODE_NAME_TOO_LONG: lambda: sink(raising(Blocked(TopologyReason.NODE_NAME_TOO_LONG, "x"))),
    TopologyReason.NO_CONFLICTS: lambda: findings.of_conflicts([], {}),
    TopologyReason.HYPERNODE_CONFLICT: lambda: findings.of_conflicts(
        [Conflict(ConflictKind.SECOND_PARENT, "a", ("b",))], {"ufm": 1}
    ),
}
GOOD = {"ProvidersServing", "TreeApproved", "UpToDate", "NoConflicts"}


@pytest.mark.parametrize("reason", CASES)
def test_each_state_has_its_reason(reason: TopologyReason) -> None:
    found = CASES[reason]()
    assert found.reason == reason
    assert found.good is (reason in GOOD)
    assert bool(found.message) is (reason not in GOOD)


def test_every_reason_has_a_state() -> None:
    assert set(CASES) == set(TopologyReason)


def test_a_write_that_is_forbidden_is_a_missing_right() -> None:
    found = sink(raising(ApiError(403, "Forbidden", "may not patch nodes")))
    assert (found.reason, found.text) == (
        TopologyReason.RIGHTS_MISSING,
        "the API server refuses it (Forbidden): may not patch nodes",
    )


def test_messages_name_providers_and_numbers() -> None:
    assert CASES[TopologyReason.PROVIDER_FAILED]().message == (
        "provider ufm exited with status 7; waits for ufm; GKM does not write before all providers have served"
    )
    tripped = CASES[TopologyReason.GUARD_TRIPPED]().message
    assert tripped.startswith("2 of 10 placed nodes would lose a domain or its other nodes")
    assert "now round 2" in tripped


def test_other_writers_are_named_with_and_without_a_conflict() -> None:
    """Two writers may be there on purpose; who wrote which objects is told in both cases, as an Event once."""
    alone, beside = findings.of_conflicts([], {}), findings.of_conflicts([], {"label": 12, "": 3})
    assert (beside.good, beside.message) == (True, "HyperNodes beside GKM's: 3 of no source, 12 of label")
    assert alone.occasion != beside.occasion == findings.of_conflicts([], {"": 4, "label": 1}).occasion
    taken = findings.of_conflicts([Conflict(ConflictKind.NAME_TAKEN, "rack-r1")], {"ufm": 1})
    assert (taken.good, taken.message) == (False, "NameTaken 1; HyperNodes beside GKM's: 1 of ufm")
