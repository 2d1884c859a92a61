"""Registries that are slow at admission: bounded in time and in threads."""

from collections.abc import Callable
from threading import Event

import pytest
from gkm_operator.admission.bounded import Bounded, NoAnswer
from gkm_operator.admission.judge import Judge
from operator_images import DIGEST, GOOD, FakeImages
from operator_reviews import IMAGE, request


class SlowImages(FakeImages):
    """A registry that does not answer before it is told to."""

    def __init__(self) -> None:
        super().__init__({IMAGE: DIGEST}, {DIGEST: GOOD})
        self.go = Event()

    def resolve(self, image: str) -> str:
        self.go.wait(30)
        return super().resolve(image)


def test_a_slow_registry_is_not_waited_for() -> None:
    images = SlowImages()
    answer = Judge(images, "enforce", seconds=0.01).answer(request())
    assert answer.allowed
    assert "did not answer within 0.01 s" in answer.warnings[0]
    images.go.set()


def test_slow_registries_take_no_more_than_their_threads() -> None:
    images = SlowImages()
    judge = Judge(images, "enforce", seconds=0.01, threads=2)
    warnings = [judge.answer(request()).warnings[0] for _ in range(4)]
    assert ["too many registries are slow" in warning for warning in warnings] == [False, False, True, True]
    images.go.set()


def too_late() -> object:
    raise TimeoutError("the registry's own")


@pytest.mark.parametrize("work", [lambda: 1 // 0, lambda: int("x"), too_late])
def test_what_bounded_work_raises_is_raised_where_it_is_waited_for(work: Callable[[], object]) -> None:
    bounded: Bounded[object] = Bounded(1, 10)
    for _ in range(3):
        with pytest.raises((ZeroDivisionError, ValueError, TimeoutError)):
            bounded.run(work)
    assert bounded.run(lambda: 7) == 7


def test_a_thread_is_free_again_when_its_late_work_ends() -> None:
    bounded: Bounded[int] = Bounded(1, 0.01)
    go, done = Event(), Event()

    def late() -> int:
        go.wait(30)
        done.set()
        return 1

    with pytest.raises(NoAnswer):
        bounded.run(late)
    with pytest.raises(NoAnswer, match="too many"):
        bounded.run(lambda: 1)
    go.set()
    assert done.wait(10)
    with bounded._free:
        pass
    patient: Bounded[int] = Bounded(1, 10)
    assert patient.run(lambda: 2) == 2
