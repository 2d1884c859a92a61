"""What one more run would change is what the two batches say."""

from gkm.packing.batches.batch import Queued, plan_batch, what_if
from gkm.packing.values import Location, Node, Request
from hypothesis import given, settings
from support.examples import examples
from support.packing.batches_cases import small

NODES = tuple(Node(f"n{number}", Location("r", "c", "b", f"d{number}"), 8, 8) for number in range(2))
QUEUE = [Queued("one", Request(8, 8, 8)), Queued("two", Request(8, 8, 8))]


def test_a_run_of_a_higher_priority_displaces_another() -> None:
    answer = what_if(NODES, QUEUE, Queued("urgent", Request(8, 8, 8), priority=1), "v1")
    assert answer.plan is not None
    assert answer.refusal is None
    assert len(answer.displaced) == 1
    assert set(answer.displaced) < {"one", "two"}
    assert answer.gained == ()


def test_a_run_that_does_not_fit_beside_the_others_changes_nothing_and_says_why() -> None:
    answer = what_if(NODES, QUEUE, Queued("late", Request(8, 8, 8), priority=-1), "v1")
    assert answer.plan is None
    assert answer.refusal is not None
    assert (answer.displaced, answer.gained, answer.moved) == ((), (), ())
    assert answer.before.admitted == answer.after.admitted


def test_a_run_whose_groups_lie_elsewhere_is_moved() -> None:
    small_one = Queued("small", Request(4, 4, 4))
    before = what_if(NODES[:1], [], small_one, "v1")
    assert before.moved == ()
    tight = (*NODES[:1], Node("n9", Location("r", "c", "b", "d9"), 4, 4))
    urgent = Queued("urgent", Request(4, 4, 4), priority=1)
    answer = what_if(tight, [small_one], urgent, "v1")
    assert answer.moved == ("small",)
    assert answer.displaced == ()


@settings(max_examples=examples(40))
@given(small())
def test_the_last_of_a_queue_as_one_more_gives_the_batch_of_all(case: tuple[tuple[Node, ...], list[Queued]]) -> None:
    nodes, (*others, last) = case
    known = plan_batch(nodes, others, "v1")
    answer = what_if(nodes, others, last, "v1", before=known)
    assert answer.after == plan_batch(nodes, [*others, last], "v1")
    assert (answer.plan is None) != (answer.refusal is None)
    admitted = {one.name for one in answer.before.admitted} - set(answer.displaced) | set(answer.gained)
    assert admitted == {one.name for one in answer.after.admitted} - {last.name}
