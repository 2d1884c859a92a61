"""The decision table of task groups: what is observed, and the one next step."""

import dataclasses
from typing import Any

import pytest
from gkm.api.meta import Condition, ObjectMeta
from gkm.api.task_groups import FINALIZER, GroupObject, Task, TaskGroup, TaskGroupSpec, TaskGroupStatus
from gkm_operator.taskgroups import decisions
from gkm_operator.taskgroups.conditions import ConditionCause
from gkm_operator.taskgroups.decisions import (
    Create,
    Delete,
    Done,
    Finalize,
    GroupObservation,
    Pods,
    Read,
    RenderObjects,
    WriteStatus,
    decide,
)
from gkm_operator.taskgroups.members import Living, Sight
from msgspec.structs import replace

NOW, EARLIER = "2026-03-01T12:00:00Z", "2026-03-01T11:00:00Z"
UNSEEN, GONE, FOREIGN = Sight.UNSEEN, Sight.GONE, Sight.FOREIGN
HERE = (Living("uid-0"), Living("uid-1"))
GOING = (Living("uid-0", terminating=True), Living("uid-1", terminating=True, finalizers=("a.test/b",)))


def group(
    phase: str = "Pending",
    objects: str = "",
    *,
    spec_phase: str | None = None,
    deleted: bool = False,
    finalizer: bool = True,
    tasks: int = 0,
    **status: Any,  # noqa: ANN401 -- fields of the status
) -> TaskGroup:
    """A group whose objects have the states `P`lanned, `C`reated or `D`eleted."""
    states = {"P": "Planned", "C": "Created", "D": "Deleted"}
    return TaskGroup(
        ObjectMeta(
            name="g",
            namespace="team",
            uid="u",
            generation=1,
            finalizers=[FINALIZER] if finalizer else [],
            deletion_timestamp=EARLIER if deleted else None,
        ),
        TaskGroupSpec(
            pool="pool",
            phase=spec_phase,  # type: ignore[arg-type]
            tasks=[Task(name=f"t{number}") for number in range(tasks)],
        ),
        TaskGroupStatus(
            observed_generation=1,
            phase=phase,  # type: ignore[arg-type]
            objects=[
                GroupObject("v1", "ConfigMap", f"c{number}", states[state], "" if state == "P" else f"uid-{number}", {})  # type: ignore[arg-type]
                for number, state in enumerate(objects)
            ],
            **status,
        ),
    )


def observed(value: TaskGroup, *seen: Any, **more: Any) -> GroupObservation:  # noqa: ANN401 -- sights, and fields
    return GroupObservation(value, tuple(seen), NOW, **more)


def deleting_since(moment: str) -> dict[str, Any]:
    return {"conditions": [Condition("ObjectsDeleted", "False", "Deleting", "", moment, 1)]}


@pytest.mark.parametrize(
    ("found", "step"),
    [
        (observed(group(finalizer=False)), Finalize(present=True)),
        (observed(group()), RenderObjects()),
        (observed(group(objects="PP"), UNSEEN, UNSEEN), Create(0)),
        (observed(group(objects="PP"), HERE[0], UNSEEN), Create(1)),
        (observed(group(objects="PP"), GONE, HERE[1]), Create(0)),
        (observed(group("Running", "CC"), *HERE), Done()),
        (observed(group("Running", "CC"), GONE, UNSEEN), Done()),
        (observed(group("Running", "CC"), *HERE, pods=Pods(seen=False)), Done()),
        (observed(group("Running", "CC", pods_seen=True), *HERE, pods=Pods(seen=True, living=1)), Done()),
        (
            observed(group("Running", "CC", pods_seen=True), *HERE, pods=Pods(seen=True, quiet_seconds=100)),
            Done(500.0),
        ),
        (
            observed(
                group("Running", "C", pods_seen=True, spec_phase="Running"),
                HERE[0],
                pods=Pods(seen=True, quiet_seconds=9e9),
            ),
            Done(),
        ),
        (observed(group("Ending", "CC"), *HERE), Delete(1, "uid-1")),
        (observed(group("Ending", "CC"), HERE[0], GOING[1]), Delete(0, "uid-0")),
        (observed(group("Ending", "CC"), UNSEEN, GONE), Delete(0, "uid-0")),
        (observed(group("Ending", "PP"), UNSEEN, GONE), Read(0)),
        (observed(group("Ending", "PP"), UNSEEN, Living("found")), Delete(1, "found")),
        (observed(group("Ending", "PP"), GONE, UNSEEN), Read(1)),
        (observed(group("Ending", "CC", **deleting_since(NOW)), *GOING), Done(30.0)),
        (observed(group("Succeeded", "DD"), UNSEEN, UNSEEN), Done()),
        (observed(group("Failed", "DD", deleted=True), GONE, GONE, strays=True), Done()),
        (observed(group("Failed", "DD", deleted=True), GONE, GONE), Finalize(present=False)),
        (observed(group("Failed", "DD", deleted=True, finalizer=False), GONE, GONE), Done()),
    ],
)
def test_the_next_step(found: GroupObservation, step: object) -> None:
    assert decide(found) == step


@pytest.mark.parametrize(
    ("found", "phase", "outcome"),
    [
        (observed(group(spec_phase="Canceled", finalizer=False)), "Canceled", "Canceled"),
        (observed(group(deleted=True)), "Canceled", "Canceled"),
        (observed(group(objects="PP", deleted=True), UNSEEN, UNSEEN), "Ending", "Canceled"),
        (observed(group(objects="PP"), *HERE), "Running", None),
        (observed(group(objects="PP"), HERE[0], FOREIGN), "Ending", "Failed"),
        (observed(group("Running", "CC", spec_phase="Succeeded"), *HERE), "Ending", "Succeeded"),
        (observed(group("Running", "CC", spec_phase="Failed", deleted=True), *HERE), "Ending", "Failed"),
        (observed(group("Running", "C", spec_phase="Running", deleted=True), HERE[0]), "Ending", "Canceled"),
        (observed(group("Running", deleted=True)), "Canceled", "Canceled"),
        (observed(group("Running", "C", tasks=2), HERE[0], pods=Pods(True, 0, ("a", "b"))), "Ending", "Succeeded"),  # noqa: FBT003
        (observed(group("Running", "C", tasks=1), HERE[0], pods=Pods(True, 1, ("a",), 60)), "Running", None),  # noqa: FBT003
        (observed(group("Running", "C"), HERE[0], pods=Pods(True, 0, ("a",), 0, 600)), "Ending", "Succeeded"),  # noqa: FBT003
        (observed(group("Running", "C"), HERE[0], pods=Pods(True, 0, (), 0, 600)), "Ending", "Failed"),  # noqa: FBT003
        (
            observed(
                group("Running", "C", tasks=2), HERE[0], pods=Pods(seen=True, succeeded=("a",), quiet_seconds=600)
            ),
            "Ending",
            "Failed",
        ),
        (observed(group("Ending", "CC", outcome="Succeeded"), GONE, GONE), "Succeeded", "Succeeded"),
        (observed(group("Ending", "CPD", outcome="Failed"), GONE, FOREIGN, UNSEEN), "Failed", "Failed"),
    ],
)
def test_a_write_of_the_status(found: GroupObservation, phase: str, outcome: str | None) -> None:
    step = decide(found)
    assert isinstance(step, WriteStatus)
    assert (step.status.phase, step.status.outcome) == (phase, outcome)


def test_created_objects_have_their_uids_and_gone_ones_no_manifest() -> None:
    step = decide(observed(group(objects="PP"), *HERE))
    assert isinstance(step, WriteStatus)
    assert [(each.state, each.uid) for each in step.status.objects] == [("Created", "uid-0"), ("Created", "uid-1")]
    step = decide(observed(group("Ending", "CC"), GONE, GONE))
    assert isinstance(step, WriteStatus)
    assert [(each.state, each.manifest) for each in step.status.objects] == [("Deleted", None)] * 2


def test_a_pod_that_was_seen_is_remembered() -> None:
    step = decide(observed(group("Running", "C"), HERE[0], pods=Pods(seen=True, living=1)))
    assert isinstance(step, WriteStatus)
    assert step.status.pods_seen


def test_pods_that_succeeded_are_written_with_anything_else_or_after_a_minute() -> None:
    seen = group("Running", "C", tasks=4, pods_seen=True, succeeded_pods=["a"])
    found = Pods(seen=True, living=1, succeeded=("a", "b"), unrecorded_seconds=20)
    assert decide(observed(seen, HERE[0], pods=found)) == Done(40.0)
    ready = ConditionCause("MNNVLReady", "True", "AllNodesReady", "")
    late = dataclasses.replace(found, unrecorded_seconds=60.0)
    for step in (
        decide(observed(seen, HERE[0], pods=found, verdicts=(ready,))),
        decide(observed(seen, HERE[0], pods=late)),
    ):
        assert isinstance(step, WriteStatus)
        assert step.status.succeeded_pods == ["a", "b"]
    seen = replace(seen, status=replace(seen.status, succeeded_pods=["a", "b"]))
    assert decide(observed(seen, HERE[0], pods=late)) == Done()


def test_the_end_forgets_which_pods_succeeded() -> None:
    ended = group("Running", "C", spec_phase="Failed", succeeded_pods=["a"])
    step = decide(observed(ended, HERE[0], pods=Pods(seen=True, succeeded=("a",))))
    assert isinstance(step, WriteStatus)
    assert step.status.succeeded_pods == []


def test_an_object_that_is_being_deleted_is_waited_for_and_then_created() -> None:
    step = decide(observed(group(objects="PP"), HERE[0], GOING[1]))
    assert isinstance(step, WriteStatus)
    (condition,) = step.status.conditions
    assert (condition.type, condition.status, condition.reason) == ("ObjectsCreated", "False", "Retrying")
    assert condition.message == "ConfigMap c1 is being deleted; it is created again once it is gone"
    waiting = group(objects="PP", conditions=step.status.conditions)
    assert decide(observed(waiting, HERE[0], GOING[1])) == Done(30.0)
    assert decide(observed(waiting, HERE[0], UNSEEN)) == Create(1)


def test_a_result_that_cannot_be_read_is_looked_for_again() -> None:
    unread = ConditionCause("NVLinkVerified", "Unknown", "Retrying", "why")
    step = decide(observed(group("Running", "C"), HERE[0], verdicts=(unread,)))
    assert isinstance(step, WriteStatus)
    assert decide(observed(group("Running", "C", conditions=step.status.conditions), HERE[0], verdicts=(unread,))) == (
        Done(30.0)
    )


def test_a_group_without_objects_runs_and_ends_without_any() -> None:
    planned = decisions.planned(observed(group()), [])
    assert (planned.status.phase, planned.status.objects) == ("Running", [])


def test_trouble_becomes_a_condition_once_and_nothing_is_created_meanwhile() -> None:
    trouble = ConditionCause("ObjectsCreated", "False", "Retrying", "quota")
    pending = group(objects="P")
    step = decide(observed(pending, UNSEEN, trouble=trouble))
    assert isinstance(step, WriteStatus)
    (condition,) = step.status.conditions
    assert (condition.reason, condition.message) == ("Retrying", "quota")
    again = group(objects="P", conditions=step.status.conditions)
    assert decide(observed(again, UNSEEN, trouble=trouble)) == Done()


def test_finalizers_are_named_when_an_object_does_not_go() -> None:
    stuck = group("Ending", "CC", **deleting_since(EARLIER))
    step = decide(observed(stuck, GONE, GOING[1]))
    assert isinstance(step, WriteStatus)
    (condition,) = step.status.conditions
    assert (condition.reason, condition.last_transition_time) == ("FinalizersPending", EARLIER)
    assert "ConfigMap c1 (finalizers: a.test/b)" in condition.message
    assert [each.state for each in step.status.objects] == ["Deleted", "Created"]
    assert decide(observed(replace(stuck, status=step.status), UNSEEN, GOING[1])) == Done(30.0)


def test_a_status_names_a_bounded_number_of_objects_that_do_not_go() -> None:
    stuck = group("Ending", "C" * 64, **deleting_since(EARLIER))
    step = decide(observed(stuck, *[Living("x", terminating=True, finalizers=("f" * 253,) * 9)] * 64))
    assert isinstance(step, WriteStatus)
    assert len(step.status.conditions[0].message) <= 1024
