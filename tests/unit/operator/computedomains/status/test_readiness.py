"""Every reason of MNNVLReady is reached, in the documented order of causes."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from gkm.api.domain_readiness import (
    MAX_CLIQUES,
    MAX_NAMES,
    CliqueMembers,
    MNNVLReadiness,
    ReadyReason,
    parse_readiness,
    unused,
)
from gkm_operator.computedomains.status.readiness import ObservedDomain, readiness
from gkm_operator.pods import WatchedPod
from support.grove.observed import CLIQUE, Json, domain, joined, template, user

NOW, LATER = "2026-02-01T00:00:00Z", "2026-02-01T01:00:00Z"
OTHER_CLIQUE = CLIQUE.removesuffix("1") + "2"


def placed(*nodes: str) -> list[WatchedPod]:
    return [user(f"pod-{node}", node) for node in nodes]


def observed(pods: Sequence[WatchedPod] = (), *members: Json, **fields: object) -> ObservedDomain:
    made = ObservedDomain(domain("training", *members), pods=pods, template=template())
    return replace(made, **fields)  # type: ignore[arg-type]


def decided(found: ObservedDomain) -> MNNVLReadiness:
    return readiness(found, None, NOW)


DELETED = domain("training", joined("n1"), deletionTimestamp=NOW)
RECREATED = domain("training", created="2026-01-02T00:00:00Z")

RUNNING = [user(f"pod-n{number}", f"n{number}", phase="Running") for number in (1, 2)]
HOST_CASES: list[tuple[ReadyReason, ObservedDomain, str]] = [
    (ReadyReason.WAITING_FOR_PODS, observed(), "no pod uses the domain"),
    (ReadyReason.TEMPLATE_MISSING, observed([user("a")], template=None), "training does not exist"),
    (
        ReadyReason.DOMAIN_TERMINATING,
        observed(RUNNING, domain=DELETED, template=None),
        "was deleted while 2 pods (pod-n1, pod-n2) used it: it works until they have ended",
    ),
    (ReadyReason.PODS_PENDING, observed([*RUNNING, user("late")]), "2 of 3 pods run on a node; pending: late"),
    (
        ReadyReason.PODS_PENDING,
        observed([*RUNNING, user("pod-n3", "n3")]),
        "2 of 3 pods run, and pod-n3 starts: NVIDIA's driver asks the IMEX daemon of the host then (hostManaged)",
    ),
    (ReadyReason.PODS_PENDING, observed(RUNNING, replicas=3), "2 of 3 pods run on a node"),
    # These pods have their channel from the host, whatever became of an earlier domain of the name.
    (ReadyReason.ALL_NODES_READY, observed(RUNNING, domain=RECREATED), "2 nodes run its pods"),
    (
        ReadyReason.ALL_NODES_READY,
        observed(RUNNING),
        "2 nodes run its pods, on the IMEX daemons of their hosts (hostManaged): no daemon is reported",
    ),
]


@pytest.mark.parametrize(("reason", "found", "words"), HOST_CASES)
def test_where_the_hosts_run_imex_pods_that_run_decide(reason: ReadyReason, found: ObservedDomain, words: str) -> None:
    condition = decided(replace(found, host_imex=True))
    assert (condition.reason, words in condition.message) == (reason, True), condition.message


def test_where_the_hosts_run_imex_the_figures_count_nodes_with_running_pods() -> None:
    condition = decided(replace(observed([*RUNNING, user("pod-n3", "n3")]), host_imex=True))
    assert (condition.expected, condition.joined, condition.ready) == (3, 2, 2)
    assert (condition.isolated, condition.cliques) == ((), {})


def test_the_same_domain_waits_for_daemons_where_the_driver_runs_them() -> None:
    assert decided(observed(RUNNING)).reason == ReadyReason.NODES_NOT_READY


CASES: list[tuple[ReadyReason, ObservedDomain, str]] = [
    (
        ReadyReason.DOMAIN_LOST,
        observed(placed("n1"), domain=DELETED, template=None),
        "was deleted while 1 pod (pod-n1) used it, and NVIDIA's controller removes its nodes",
    ),
    (
        ReadyReason.DOMAIN_TERMINATING,
        observed(placed("n1"), domain=DELETED),
        "was deleted while 1 pod (pod-n1) used it: it works until they have ended",
    ),
    (
        ReadyReason.DOMAIN_LOST,
        observed(placed("n1", "n2"), domain=RECREATED),
        "2 pods (pod-n1, pod-n2) started before this ComputeDomain was created (2026-01-02T00:00:00Z)",
    ),
    (
        ReadyReason.TEMPLATE_MISSING,
        observed([user("a")], template=None),
        "ResourceClaimTemplate training does not exist",
    ),
    (
        ReadyReason.TEMPLATE_MISSING,
        observed(replicas=1, template=template(uid="")),
        "training is not of NVIDIA's controller: delete it",
    ),
    (
        ReadyReason.TEMPLATE_MISSING,
        observed([user("a")], template=template(uid="of-another")),
        "training was made for a ComputeDomain that this namespace does not have (uid of-another): delete it",
    ),
    (
        ReadyReason.TEMPLATE_MISSING,
        observed([user("a")], template=template(uid="of-another"), template_owner="inference"),
        "training belongs to the ComputeDomain inference, which names it as well: create one of the two again",
    ),
    (ReadyReason.WAITING_FOR_PODS, observed(), "no pod uses the domain"),
    (ReadyReason.WAITING_FOR_PODS, observed(template=None), "no pod uses the domain"),
    (
        ReadyReason.CLAIM_MISSING,
        observed(placed("n1"), joined("n1"), unclaimed=[user("late", "n2", template="")]),
        "1 pod (late) with its label got no claim, because the webhook of GKM did not run or MNNVL was off: create",
    ),
    (
        ReadyReason.NODE_TAKEN,
        observed(placed("n1", "n2"), taken={"n2": "one of another namespace"}),
        "another ComputeDomain has the IMEX channel of 1 node of its pods: n2 (one of another namespace)",
    ),
    (
        ReadyReason.NODES_ISOLATED,
        observed(placed("n1", "n2"), joined("n1"), joined("n2", clique="", index=-1)),
        "1 of 2 joined nodes have no NVLink fabric: n2",
    ),
    (
        ReadyReason.SEVERAL_CLIQUES,
        observed(placed("n1", "n2", "n3"), joined("n1"), joined("n2", clique=OTHER_CLIQUE), joined("n3")),
        f"{CLIQUE} (2 nodes), {OTHER_CLIQUE} (1 node)",
    ),
    (
        ReadyReason.PODS_PENDING,
        observed([user("a"), *placed("n1")], joined("n1")),
        "1 of 2 pods run on a node; pending: a",
    ),
    (ReadyReason.PODS_PENDING, observed(placed("n1"), joined("n1"), replicas=4), "1 of 4 pods run on a node"),
    (ReadyReason.PODS_PENDING, observed(replicas=2), "0 of 2 pods run on a node"),
    (
        ReadyReason.NODES_NOT_READY,
        observed(placed("n1", "n2", "n3"), joined("n1"), joined("n2", "NotReady")),
        "2 of 3 nodes have no ready IMEX daemon: n2, n3",
    ),
    (ReadyReason.ALL_NODES_READY, observed(placed("n1", "n2"), joined("n1"), joined("n2")), "2 nodes joined and ready"),
    (ReadyReason.ALL_NODES_READY, observed(placed("n1"), joined("n1"), replicas=1), "1 node joined and ready"),
]


@pytest.mark.parametrize(("reason", "found", "message"), CASES)
def test_each_reason_has_its_cause(reason: ReadyReason, found: ObservedDomain, message: str) -> None:
    condition = decided(found)
    assert (condition.reason, condition.status) == (
        reason,
        "True" if reason is ReadyReason.ALL_NODES_READY else "False",
    )
    assert message in condition.message


def test_nothing_advises_to_delete_the_template_of_a_living_domain() -> None:
    """Its pods would lose their channels to the next deletion of it."""
    found = observed([user("a")], template=template(uid="of-another"), template_owner="inference")
    assert "delete" not in decided(found).message


def test_the_table_reaches_every_reason() -> None:
    assert {reason for reason, _, _ in CASES} == set(ReadyReason)


def test_a_repaired_cause_uncovers_the_next_in_the_documented_order() -> None:
    """Everything is wrong at once, and is repaired cause by cause."""
    broken = observed(
        [user("a", "n1"), user("b", "n2"), user("c", "n3"), user("d")],
        unclaimed=[user("late", template="")],
        taken={"n3": "other"},
        template=None,
        domain=domain(
            "training", joined("n1", clique=OTHER_CLIQUE), joined("n2", clique="", index=-1), deletionTimestamp=NOW
        ),
    )
    alive = domain("training", joined("n1", clique=OTHER_CLIQUE), joined("n2", clique="", index=-1))
    repairs: list[dict[str, object]] = [
        {"template": template()},
        {"domain": alive, "template": None},
        {"template": template()},
        {"unclaimed": []},
        {"taken": {}},
        {"domain": domain("training", joined("n1", clique=OTHER_CLIQUE), joined("n2", "NotReady"))},
        {"domain": domain("training", joined("n1"), joined("n2", "NotReady"))},
        {"pods": placed("n1", "n2", "n3")},
        {"domain": domain("training", joined("n1"), joined("n2"), joined("n3"))},
    ]
    reasons = [decided(broken).reason]
    for repair in repairs:
        broken = replace(broken, **repair)  # type: ignore[arg-type]
        reasons.append(decided(broken).reason)
    order = [reason.value for reason in ReadyReason if reason is not ReadyReason.WAITING_FOR_PODS]
    assert reasons == order


def test_the_status_that_nvidia_writes_at_birth_counts_for_nothing() -> None:
    born = observed()
    assert born.domain.status.status == "Ready"
    assert decided(born).status == "False"


def test_nodes_are_counted_once_and_by_clique() -> None:
    condition = decided(
        observed(
            placed("n1", "n2", "n3", "n4"),
            joined("n1"),
            joined("n2", "NotReady"),
            joined("n3", clique=OTHER_CLIQUE),
            joined("n4", clique="", index=-1),
            joined("left-behind"),
            replicas=6,
        )
    )
    assert (condition.expected, condition.joined, condition.ready, condition.isolated) == (6, 4, 2, ("n4",))
    assert condition.cliques == {CLIQUE: CliqueMembers(2, 1), OTHER_CLIQUE: CliqueMembers(1, 1)}


def test_pods_that_share_a_node_are_a_warning_beside_every_reason() -> None:
    warning = "Several of its pods share one IMEX channel, of n1"
    shared = [user("a", "n1"), user("b", "n1")]
    for members in ((), (joined("n1"),)):
        assert warning in decided(observed(shared, *members)).message
    assert "share" not in decided(observed(placed("n1", "n2"))).message


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        (
            user("a", "n1", created="2026-01-03T00:00:00Z", started="2026-01-01T00:00:00Z"),
            "the clock of its node is slow",
        ),
        (user("a", "n1", started="2026-01-02T00:00:00Z"), "it waited for the domain, and started in its second"),
        (user("a", "n9", started="2026-01-01T00:00:00Z"), "its node has joined the domain"),
        (user("a", "n1", terminating=True), "it is restarted already"),
        (user("a", ""), "it has not started"),
    ],
)
def test_pods_that_need_not_restart(pod: WatchedPod, why: str) -> None:
    recreated = domain("training", joined("n9"), created="2026-01-02T00:00:00Z")
    assert decided(observed([pod], domain=recreated)).reason != ReadyReason.DOMAIN_LOST, why


@pytest.mark.parametrize(
    ("metadata", "pods", "lost"),
    [
        ({}, placed("n1"), True),  # a domain of a user
        ({}, [], False),
        (
            {"labels": {"gkm.io/written-by": "gkm"}, "finalizers": ["grove.io/computedomain-finalizer"]},
            placed("n1"),
            True,
        ),
        (
            {"labels": {"gkm.io/written-by": "gkm"}, "finalizers": ["resource.nvidia.com/computeDomain"]},
            placed("n1"),
            False,
        ),
    ],
)
def test_a_domain_that_gkm_releases_is_not_lost(metadata: Json, pods: list[WatchedPod], lost: bool) -> None:  # noqa: FBT001
    deleted = domain("training", deletionTimestamp=NOW, **metadata)
    assert observed(pods, domain=deleted).is_leaving is not lost
    assert not observed(pods, domain=domain("training", **metadata)).is_leaving


def test_a_new_domain_waits_for_its_template_as_its_pods_do() -> None:
    new = observed([user("a")], template=None)
    assert readiness(new, None, NOW, is_new=True).reason == ReadyReason.PODS_PENDING
    foreign = observed([user("a")], template=template(uid=""))
    assert readiness(foreign, None, NOW, is_new=True).reason == ReadyReason.TEMPLATE_MISSING


def test_the_condition_at_birth_is_that_of_an_unused_domain() -> None:
    assert decided(observed(template=None)) == unused(NOW)


def test_the_time_of_a_transition_changes_with_the_status_only() -> None:
    waiting = readiness(observed(), None, NOW)
    pending = readiness(observed([user("a")]), waiting, LATER)
    assert (waiting.last_transition_time, pending.last_transition_time) == (NOW, NOW)
    ready = readiness(observed(placed("n1"), joined("n1")), pending, LATER)
    assert ready.last_transition_time == LATER


def test_equal_facts_in_another_order_give_an_equal_condition() -> None:
    members = [joined(f"n{number}", "NotReady", clique=f"c{number % 3}") for number in range(40)]
    pods = placed(*(f"n{number}" for number in range(40)))
    forwards = decided(observed(pods, *members))
    backwards = decided(observed(pods[::-1], *members[::-1]))
    assert forwards == backwards


def test_the_annotation_is_bounded_and_can_be_read_again() -> None:
    names = [f"node-{number:04}" for number in range(2000)]
    members = [joined(name, clique=f"{name}-{'x' * 500}" if number % 2 else "") for number, name in enumerate(names)]
    condition = decided(observed(placed(*names), *members))
    assert (len(condition.isolated), len(condition.cliques), condition.joined) == (MAX_NAMES, MAX_CLIQUES, 2000)
    assert parse_readiness(condition.text()) == condition
    assert len(condition.text()) < 16_384


def test_foreign_names_are_escaped_in_messages() -> None:
    condition = decided(observed(placed("n1", "n2"), joined("n1", clique="a\x1b[2J"), joined("n2", clique="b\u202e")))
    assert condition.reason == ReadyReason.SEVERAL_CLIQUES
    assert condition.message.isprintable()


@pytest.mark.parametrize(
    "text", [None, "", "null", "[]", "{", '{"type": 7}', "[" * 100_000, '{"type":"' + "x" * 70_000]
)
def test_an_annotation_of_anyone_else_is_no_condition(text: str | None) -> None:
    assert parse_readiness(text) is None


def test_a_foreign_transition_time_is_replaced() -> None:
    forged = decided(observed())
    forged = MNNVLReadiness(
        type=forged.type, status=forged.status, reason=forged.reason, message="", last_transition_time="yesterday"
    )
    assert readiness(observed(), forged, LATER).last_transition_time == LATER
