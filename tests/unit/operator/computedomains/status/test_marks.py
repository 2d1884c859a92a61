"""The mark of a domain is the number of living pods that use it; protection precedes everything else."""

from itertools import pairwise
from typing import NamedTuple

import pytest
from gkm.kube.elector import NotLeading
from gkm_operator.computedomains.status.controller import is_used, mark
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.grove.observed import NAME, Json, domain_json, template_json, user
from support.grove.pods import pod
from support.operator.domain_status import StatusScene
from support.operator.domains import DOMAINS, TEMPLATES


def used(name: str, **fields: object) -> Json:
    return pod(name, template=NAME, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "names"),
    [
        (0, None),
        (1, "p0"),
        (5, "p0, p1, p2, p3, p4"),
        (6, "p0, p1, p2, p3, p4 and 1 more"),
        (18, "p0, p1, p10, p11, p12 and 13 more"),
    ],
)
def test_the_mark_has_the_number_and_some_names(count: int, names: str | None) -> None:
    pods = [user(f"p{number}") for number in range(count)]
    assert mark(pods) == mark(pods[::-1]) == {"gkm.io/pods-using": str(count), "gkm.io/used-by": names}


@pytest.mark.parametrize(("value", "protects"), [(None, False), ("0", False), ("1", True), ("x", True), ("", True)])
def test_a_mark_reads_as_the_policies_read_it(value: str | None, protects: bool) -> None:  # noqa: FBT001 -- a column
    assert is_used(value) is protects


BOTH = ["resourceclaimtemplates", "computedomains"]
"""The order of writes: what NVIDIA's controller must delete precedes the update that makes it try again."""


def test_the_first_pod_marks_template_and_domain_at_once() -> None:
    scene = StatusScene()
    scene.reconcile()
    assert scene.writes() == []  # the interval of a new domain has begun
    scene.put(used("a"))
    scene.reconcile()
    assert scene.mark() == scene.mark(TEMPLATES) == ("1", "a")
    assert scene.writes() == BOTH
    assert scene.reconcile(after=2.0) is None
    assert scene.writes() == []


def test_a_change_of_figures_waits_longer_than_the_last_pod() -> None:
    scene = StatusScene()
    scene.put(used("a"))
    scene.reconcile()
    scene.writes()
    scene.put(used("b"), used("c"))
    assert scene.reconcile() == 15.0
    scene.remove(used("a"))
    assert scene.reconcile(after=14.5) == 0.5
    assert (scene.mark(), scene.writes()) == (("1", "a"), [])
    assert scene.reconcile(after=0.5) is None
    assert scene.mark() == scene.mark(TEMPLATES) == ("2", "b, c")
    assert scene.writes() == BOTH
    scene.remove(used("b"), used("c"))
    assert scene.reconcile() == 2.0
    assert scene.reconcile(after=2.0) is None
    assert (scene.mark(), scene.writes()) == (("0", None), BOTH)


def test_a_fall_and_a_rise_in_one_interval_is_no_write() -> None:
    scene = StatusScene()
    scene.put(used("a"))
    scene.reconcile()
    scene.writes()
    scene.remove(used("a"))
    assert scene.reconcile(after=0.5) == 1.5
    scene.put(used("a"))
    assert scene.reconcile(after=1.5) is None
    assert scene.writes() == []


def test_nothing_is_written_without_a_change() -> None:
    scene = StatusScene()
    scene.put(used("a"))
    scene.reconcile()
    scene.writes()
    assert [scene.reconcile(after=10.0) for _ in range(5)] == [None] * 5
    assert scene.writes() == []


def test_an_unused_domain_is_marked_with_its_condition_and_its_template_is_not() -> None:
    scene = StatusScene()
    assert scene.reconcile() == 2.0
    assert scene.reconcile(after=2.0) is None
    assert (scene.mark(), scene.mark(TEMPLATES)) == (("0", None), (None, None))
    assert scene.writes() == ["computedomains"]


def test_the_last_pod_takes_the_names_with_it() -> None:
    scene = StatusScene()
    scene.put(used("a"))
    scene.reconcile()
    scene.reconcile(after=2.0)
    scene.put(used("a", terminating=True))
    scene.reconcile(after=15.0)
    assert scene.mark() == ("1", "a")  # it runs until it is gone
    scene.remove(used("a"))
    scene.reconcile(after=2.0)
    assert scene.mark() == scene.mark(TEMPLATES) == ("0", None)


def test_a_template_that_appears_while_pods_wait_is_marked_at_once() -> None:
    scene = StatusScene(template=False)
    scene.put(used("a"))
    scene.reconcile()
    scene.api.create(TEMPLATES, template_json())
    scene.reconcile(after=0.1)
    assert scene.mark(TEMPLATES) == ("1", "a")


def test_a_template_of_another_owner_is_never_marked() -> None:
    scene = StatusScene(template=False)
    scene.api.create(TEMPLATES, template_json(uid="of-another"))
    scene.put(used("a"))
    scene.reconcile()
    scene.reconcile(after=2.0)
    assert (scene.mark(), scene.mark(TEMPLATES)) == (("1", "a"), (None, None))


def test_the_marks_of_a_deleted_domain_fall_with_its_last_pod() -> None:
    """NVIDIA's controller waits for that: its teardown begins with the template, and an update makes it try again."""
    scene = StatusScene()
    scene.put(used("a"))
    scene.reconcile()
    scene.change_domain(metadata={"deletionTimestamp": "2026-02-01T00:00:00Z", "finalizers": ["someone"]})
    scene.reconcile(after=2.0)
    assert scene.mark() == scene.mark(TEMPLATES) == ("1", "a")
    scene.writes()
    scene.remove(used("a"))
    scene.reconcile(after=2.0)
    assert scene.mark() == scene.mark(TEMPLATES) == ("0", None)
    assert scene.writes() == BOTH


def test_a_template_whose_domain_is_gone_is_marked_until_its_pods_have_ended() -> None:
    scene = StatusScene()
    scene.put(used("a"))
    scene.reconcile()
    scene.api.delete(DOMAINS, NAME, "team")
    scene.reconcile()
    assert scene.mark(TEMPLATES) == ("1", "a")
    scene.remove(used("a"))
    scene.reconcile()
    assert scene.mark(TEMPLATES) == ("0", None)


def test_a_template_whose_domain_is_gone_gives_way_to_a_new_domain_of_its_name() -> None:
    """Nothing can join the old one, and NVIDIA's controller has to make a template for the new one."""
    scene = StatusScene()
    scene.put(used("a"))
    scene.reconcile()
    scene.api.delete(DOMAINS, NAME, "team")
    scene.put_domain(domain_json(uid="second"))
    scene.reconcile()
    assert scene.mark(TEMPLATES) == ("0", None)


def test_a_mark_that_someone_removed_is_written_again() -> None:
    scene = StatusScene()
    scene.put(used("a"))
    scene.reconcile()
    scene.reconcile(after=2.0)
    scene.change_domain(metadata={"annotations": {}})
    scene.reconcile(after=2.0)
    assert scene.mark() == ("1", "a")


def test_a_process_that_does_not_lead_writes_nothing() -> None:
    scene = StatusScene()
    scene.leads = False
    scene.put(used("a"))
    with pytest.raises(NotLeading, match="no longer holds the lease"):
        scene.reconcile()
    assert scene.writes() == []


class Step(NamedTuple):
    """A pod as it is from now on, or its removal, and the seconds that pass before the next reconcile."""

    name: str
    phase: str
    node: str
    terminating: bool
    template: str
    exists: bool
    seconds: float
    reconciled: bool


steps = st.builds(
    Step,
    name=st.sampled_from("abc"),
    phase=st.sampled_from(["Pending", "Running", "Running", "Succeeded", "Failed"]),
    node=st.sampled_from(["", "n1"]),
    terminating=st.booleans(),
    template=st.sampled_from([NAME, NAME, "other", ""]),
    exists=st.sampled_from([True, True, False]),
    seconds=st.sampled_from([0.0, 0.7, 2.0]),
    reconciled=st.booleans(),
)


@settings(max_examples=examples(300))
@given(st.lists(steps, min_size=5, max_size=30))
def test_after_any_history_of_pods_the_mark_is_the_number_of_living_ones(history: list[Step]) -> None:
    scene = StatusScene()
    living: set[str] = set()
    for step in history:
        made = pod(step.name, template=step.template, phase=step.phase, node=step.node, terminating=step.terminating)
        if step.exists:
            scene.put(made)
        else:
            scene.remove(made)
        uses = step.exists and step.template == NAME and step.phase in {"Pending", "Running"}
        living = living | {step.name} if uses else living - {step.name}
        if step.reconciled:
            scene.reconcile(after=step.seconds)
            if living:
                # Protection comes first, whatever else waits.
                assert is_used(scene.mark()[0])
                assert is_used(scene.mark(TEMPLATES)[0])
    scene.reconcile()
    scene.reconcile(after=15.0)
    assert scene.mark() == (str(len(living)), ", ".join(sorted(living)) or None)
    assert scene.mark(TEMPLATES)[0] in ({str(len(living))} if living else {None, "0"})


@settings(max_examples=examples(100))
@given(st.lists(steps, min_size=5, max_size=40))
def test_no_history_writes_a_domain_twice_in_an_interval_but_to_protect_it(history: list[Step]) -> None:
    scene = StatusScene()
    written: list[tuple[float, bool]] = []
    for step in history:
        made = pod(step.name, template=step.template, phase=step.phase, terminating=step.terminating)
        (scene.put if step.exists else scene.remove)(made)
        before = is_used(scene.mark()[0])
        scene.reconcile(after=step.seconds)
        protected = not before and is_used(scene.mark()[0])
        writes = scene.writes().count("computedomains")
        written.extend((scene.seconds, protected and not number) for number in range(writes))
    for (earlier, _), (later, protected) in pairwise(written):
        assert protected or later - earlier >= 2.0
