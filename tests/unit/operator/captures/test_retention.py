"""Captured caches end by age and by number, but never in use; their images stay in the registry."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from gkm.api.config import CapturedCaches
from gkm.api.errors import GKMError, Reason
from gkm.kube.errors import ApiError
from gkm.kube.resources import GKMCACHES
from gkm.kube.workqueue import Retry
from gkm_operator.captures.objects import Announcement
from gkm_operator.captures.retention import MAX_PER_NAMESPACE, RetentionPlan
from support.kube.interposed_api import Call
from support.operator.captures import (
    NAMESPACE,
    NOW,
    CapturesProcess,
    CapturesWorld,
    FakeCapturedImages,
    captured,
    name_of,
)
from support.operator.retention import DAY, later, world_with


def test_an_old_capture_ends_and_is_not_registered_again() -> None:
    world = world_with(1)
    assert world.names() == [name_of(1)]
    later(world)
    assert world.names() == []
    # The node still announces it.
    later(world, 2 * DAY, 10)
    assert len(world.images.proofs) == 1
    assert ("Ended", name_of(1)) in world.events()
    (note,) = world.notes("Ended")
    assert note.startswith("Expired: captured more than 86400 seconds ago")
    assert note.endswith("; its image stays in the registry")


def test_a_namespace_whose_captures_are_gone_takes_no_memory() -> None:
    world = CapturesWorld()
    world.announce("node", captured(1))
    process = CapturesProcess(world)
    process.run()
    assert process.controller.observed.namespaces() == [NAMESPACE]
    assert process.controller._judged.keys() == process.controller._held_back.keys() == {NAMESPACE}
    world.announce("node")
    for name in world.names():
        world.api.delete(GKMCACHES, name, NAMESPACE)
    process.run()
    assert process.controller.observed.namespaces() == []
    assert process.controller._judged == process.controller._held_back == {}


@pytest.mark.parametrize("age", [-2 * DAY, -(2 * DAY + 60.0), -100 * DAY], ids=["now", "a minute ahead", "far ahead"])
def test_a_node_that_announces_another_time_makes_no_capture_younger(age: float) -> None:
    world = world_with(1)
    world.announce("stolen", captured(1, age=age))
    world.images.times[captured(1).image] = NOW - timedelta(seconds=60)
    later(world)
    assert world.names() == []
    assert {note.partition(":")[0] for note in world.notes("Ended")} == {"Expired"}


def test_a_node_that_announces_old_captures_as_new_ones_displaces_no_newer_one() -> None:
    world = world_with(1, 2, 3, versions=2)
    assert world.names() == [name_of(1), name_of(2)]
    world.announce("stolen", captured(3, age=-60.0))
    world.images.times[captured(3).image] = NOW - timedelta(seconds=180)
    later(world, 60.0)
    assert world.names() == [name_of(1), name_of(2)]


def test_of_one_hardware_the_newest_versions_stay() -> None:
    world = world_with(1, 2, 3, 4)
    world.settings = CapturedCaches(max_age=DAY, versions=2)
    later(world, 0.0)
    assert world.names() == [name_of(1), name_of(2)]
    assert {note.partition(":")[0] for note in world.notes("Ended")} == {"Superseded"}
    assert len(world.images.proofs) == 4


def test_captures_of_other_hardware_do_not_count() -> None:
    world = CapturesWorld(CapturedCaches(max_age=DAY, versions=1))
    world.announce("node-1", captured(1), captured(2, age=9, driver="580.1"), captured(3, age=9, version="3.5.0"))
    CapturesProcess(world).run()
    assert world.names() == [name_of(1), name_of(2), name_of(3)]


def test_announcements_that_prove_nothing_displace_no_cache() -> None:
    world = world_with(1, versions=1)
    forged = [captured(number, age=0) for number in range(50, 60)]
    for each in forged:
        world.images.errors[each.image] = GKMError(Reason.SIGNATURE_MISSING, "no signature was found")
    world.announce("node-2", *forged)
    process = CapturesProcess(world)
    process.run(10)
    assert world.names() == [name_of(1)]
    assert process.condition(name_of(1)) == ("True", "Current")


def test_a_namespace_has_a_limited_number() -> None:
    world = world_with(*range(1, MAX_PER_NAMESPACE + 9), versions=1000)
    assert world.names() == sorted(name_of(number) for number in range(1, MAX_PER_NAMESPACE + 1))


def test_what_pods_mount_stays_until_they_end() -> None:
    world = world_with(1)
    world.use(name_of(1), 2)
    process = later(world)
    assert world.names() == [name_of(1)]
    assert process.condition(name_of(1)) == ("True", "InUse")
    world.use(name_of(1), 0)
    later(world)
    assert world.names() == []


def test_zero_versions_register_nothing_and_end_what_there_is() -> None:
    world = world_with(1, 2)
    world.settings = CapturedCaches(versions=0)
    later(world, 0.0)
    assert world.names() == []


class OrderedSteps(FakeCapturedImages):
    """Records in which order images are proven and caches are deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []

    def prove(self, announced: Announcement, now: datetime, *, cluster: bool) -> datetime:
        self.steps.append("prove")
        return super().prove(announced, now, cluster=cluster)

    def around(self, call: Call, send: Callable[[], Any]) -> Any:  # noqa: ANN401 -- any answer
        self.steps += ["delete"] if call.verb == "delete" else []
        return send()


def test_a_cache_that_pods_began_to_mount_meanwhile_is_not_deleted() -> None:
    world = world_with(1)
    world.now = NOW + timedelta(seconds=2 * DAY)
    process = CapturesProcess(world)

    def mount(_namespace: str, _plan: RetentionPlan) -> None:
        world.use(name_of(1), 1)
        process.observe()

    process.controller.reconciler._publish = mount
    with pytest.raises(Retry, match="has changed since"):
        process.controller.reconciler.reconcile(NAMESPACE)
    assert world.names() == [name_of(1)]
    assert world.notes("Ended") == []


def test_caches_end_before_captures_are_proven() -> None:
    world = world_with(1)
    world.now = NOW + timedelta(seconds=2 * DAY)
    world.announce("node-2", captured(2, age=-2 * DAY))
    images = world.images = OrderedSteps()
    CapturesProcess(world, images.around).run(1)
    assert images.steps == ["delete", "prove"]


def test_a_change_that_no_watch_has_shown_prevents_the_end_of_the_object() -> None:
    world = world_with(1)
    world.now = NOW + timedelta(seconds=2 * DAY)
    process = CapturesProcess(world)
    world.use(name_of(1), 1)
    process.controller.reconciler.reconcile(NAMESPACE)
    assert world.names() == [name_of(1)]


def test_caches_that_cannot_be_deleted_delay_no_other_one() -> None:
    world = world_with(*range(1, 13))
    world.now = NOW + timedelta(seconds=2 * DAY)
    refused = {name_of(number) for number in range(1, 11)}

    def around(call: Call, send: Callable[[], Any]) -> Any:  # noqa: ANN401 -- any answer
        if call.verb == "delete" and call.name in refused:
            raise ApiError(504, "Timeout", "the answer was lost")
        return send()

    process = CapturesProcess(world, around)
    process.run(3)
    assert world.names() == sorted(refused)
    assert process.condition(name_of(1)) == ("False", "Expired")
    assert (process.controller.reconciler.reconcile(NAMESPACE) or 0.0) >= 1.0
    # Each one waits for its own pause.
    refused.clear()
    process.run()
    assert len(world.names()) == 10
    process.seconds += 3600.0
    process.run(2)
    assert world.names() == []
