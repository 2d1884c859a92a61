"""The conditions of a task group: the result of a test of NVLink, and which changes become Events."""

import pytest
from gkm.api.meta import Condition
from gkm.api.task_groups import TaskGroupStatus
from gkm_operator.taskgroups import conditions
from hypothesis import given
from hypothesis import strategies as st

NCCL = """# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728
#       size         count      type   redop    root     time   algbw   busbw #wrong
   134217728      33554432     float     sum      -1    612.9  218.99  383.24      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 376.496
#
"""


@pytest.mark.parametrize(
    ("job", "messages", "status", "reason"),
    [
        ("", (), "Unknown", "TestRunning"),
        ("Failed", (NCCL,), "False", "TestFailed"),
        ("Complete", (NCCL,), "True", "BandwidthReached"),
        ("Complete", ("avg bus bandwidth:376",), "True", "BandwidthReached"),
        ("Complete", (NCCL, "# Avg bus bandwidth : 12.5"), "False", "BandwidthTooLow"),
        ("Complete", ("Avg bus bandwidth : 375.999",), "False", "BandwidthTooLow"),
        ("Complete", (), "Unknown", "NoResult"),
        ("Complete", ("", "Avg bus bandwidth : nan", "Avg bus bandwidth : 1e9"), "Unknown", "NoResult"),
        ("Complete", ("Avg bus bandwidth : -400",), "Unknown", "NoResult"),
        ("Complete", ("Avg bus bandwidth : 1.2.3",), "Unknown", "NoResult"),
        ("Complete", (f"{NCCL}{' ' * (20 << 10)}",), "Unknown", "NoResult"),
    ],
)
def test_the_result_of_a_test_of_nvlink(job: str, messages: tuple[str, ...], status: str, reason: str) -> None:
    found = conditions.nvlink(376, job, messages)
    assert (found.type, found.status, found.reason) == ("NVLinkVerified", status, reason)


@given(st.lists(st.text(alphabet="avg bus bandwidth: 0123456789.\n\x1b\u202e"), max_size=4))
def test_no_message_of_a_pod_appears_in_the_condition(messages: list[str]) -> None:
    found = conditions.nvlink(1, "Complete", messages)
    assert found.message.isprintable()
    assert "/s average bus bandwidth" in found.message or found.reason == "NoResult"


def test_the_end_of_a_long_message_is_read() -> None:
    hostile = ("avg bus bandwidth" + " " * 40) * (1 << 14)
    found = conditions.nvlink(376, "Complete", [hostile] * 100 + [hostile + NCCL])
    assert (found.status, found.reason) == ("True", "BandwidthReached")


def condition(type_: str, status: str, reason: str) -> Condition:
    return Condition(type_, status, reason, "why", "2026-03-01T12:00:00Z", 1)


CREATED, DELETED, NVLINK = "ObjectsCreated", "ObjectsDeleted", "NVLinkVerified"


@pytest.mark.parametrize(
    ("before", "after", "events"),
    [
        (None, (CREATED, "False", "NameTaken"), [("Warning", "NameTaken")]),
        ((CREATED, "False", "Retrying"), (CREATED, "False", "Retrying"), []),
        ((CREATED, "False", "Retrying"), (CREATED, "True", "Created"), []),
        (None, (DELETED, "False", "Deleting"), []),
        (
            (DELETED, "False", "Deleting"),
            (DELETED, "False", "FinalizersPending"),
            [("Warning", "FinalizersPending")],
        ),
        (None, (NVLINK, "Unknown", "TestRunning"), []),
        (
            (NVLINK, "Unknown", "TestRunning"),
            (NVLINK, "True", "BandwidthReached"),
            [("Normal", "BandwidthReached")],
        ),
        (None, (NVLINK, "False", "BandwidthTooLow"), [("Warning", "BandwidthTooLow")]),
        (None, ("MNNVLReady", "False", "NodeTaken"), []),
    ],
)
def test_what_goes_wrong_and_results_become_events(
    before: tuple[str, str, str] | None, after: tuple[str, str, str], events: list[tuple[str, str]]
) -> None:
    old = TaskGroupStatus(conditions=[condition(*before)] if before else [])
    found = conditions.events(old, TaskGroupStatus(conditions=[condition(*after)]))
    assert [(each.kind, each.reason) for each in found] == events
