"""The controllers are killed between any two writes about captures, or a write fails: the next process completes it.

A capture has one cache; what ended leaves no object; no object of others changes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from gkm.api.config import CapturedCaches
from gkm.api.nodes import CapturedImage
from gkm.kube.errors import ApiError
from support.kube.interposed_api import Around, Call, Killed
from support.operator.captures import NOW, CapturesProcess, CapturesWorld, captured, of_family

DAY = 86_400.0
MINE = "registry.test/team/own:1"


@dataclass
class DisturbedWrites:
    """Kills, or fails, at the write to the API with this number."""

    step: int
    after: bool
    kills: bool
    count: int = 0

    def around(self, call: Call, send: Callable[[], Any]) -> Any:  # noqa: ANN401 -- any answer
        return self.take(send) if call.writes else send()

    def take(self, act: Callable[[], Any]) -> Any:  # noqa: ANN401 -- any answer
        number, self.count = self.count, self.count + 1
        dead = self.kills and number > self.step
        if dead or (number == self.step and not self.after):
            raise self._error()
        answer = act()
        if number == self.step:
            raise self._error()
        return answer

    def _error(self) -> BaseException:
        return Killed() if self.kills else ApiError(504, "Timeout", "the answer was lost")


@dataclass(frozen=True)
class Captures:
    """Four captures: by themselves, or the generations of a family, of which each extends the one before."""

    family: str

    def __getitem__(self, number: int) -> CapturedImage:
        """Return a capture; the first one is too old, or the third newest generation of its family."""
        if not self.family:
            return captured(number, age=DAY / 2 if number == 1 else -DAY + number)
        return of_family(number, self.family, base=number - 1, age=-1.0 if number == 1 else -DAY - number)


def began(captures: Captures) -> CapturesWorld:
    """Three captures, of which one is registered and will end, and a cache of a user with the name of another."""
    world = CapturesWorld(CapturedCaches(max_age=DAY, versions=2))
    world.announce("old", captures[1])
    CapturesProcess(world).run()
    world.announce("old")
    world.now = NOW + timedelta(seconds=DAY)
    world.own(captures[4].name, MINE)
    fresh = [captures[number] for number in (2, 3, 4)]
    world.announce("node-1", *fresh)
    world.announce("node-2", *fresh)
    return world


def run(world: CapturesWorld, around: Around | None = None) -> None:
    process = CapturesProcess(world, around)
    for _ in range(6):
        process.run(1)
        process.seconds += 3600.0


def check(world: CapturesWorld, captures: Captures, *, sent: bool = True) -> None:
    """Check the end; without `sent`, the one request that failed may have been that for an Event."""
    assert world.names() == sorted(captures[number].name for number in (2, 3, 4))
    (other,) = (each for each in world.caches() if each["metadata"]["name"] == captures[4].name)
    assert other["spec"] == {"image": MINE}
    ended = [event for event in world.events() if event[0] == "Ended"]
    assert ended == [("Ended", captures[1].name)] or (not sent and ended == [])
    if captures.family:
        assert world.generations(captures.family) == {captures[2].name: 2, captures[3].name: 3}


def steps_of(captures: Captures) -> int:
    counter = DisturbedWrites(1 << 30, after=False, kills=False)
    world = began(captures)
    run(world, counter.around)
    check(world, captures)
    return counter.count


CAPTURES = pytest.mark.parametrize("captures", [Captures(""), Captures("llama")], ids=["alone", "family"])


@CAPTURES
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kills", [True, False], ids=["killed", "failed"])
def test_any_write_may_be_the_last_one_of_a_process(captures: Captures, *, kills: bool, after: bool) -> None:
    count = steps_of(captures)
    assert count > 4
    for step in range(count):
        world = began(captures)
        steps = DisturbedWrites(step, after, kills)
        try:
            run(world, steps.around)
        except Killed:
            run(world)
        check(world, captures, sent=kills)


@CAPTURES
def test_two_leaders_at_once_register_once(captures: Captures) -> None:
    world = began(captures)
    processes = [CapturesProcess(world) for _ in range(2)]
    for process in processes * 4:
        # Neither watch has shown what the other process wrote.
        for namespace in process.controller.observed.namespaces():
            try:
                process.controller.reconciler.reconcile(namespace)
            except Exception as error:  # noqa: BLE001 -- the queue would retry
                assert str(error).startswith(("AlreadyExists", "Conflict", "NotFound"))
    run(world)
    check(world, captures)
