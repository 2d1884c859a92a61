"""The garbage collector of tests acts beside threads that work with faults: it never changes the API that they see."""

from contextlib import suppress
from threading import Event, Thread
from typing import Any, Self

from gkm.kube.api import Change
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS, Resource
from support.operator.group_witness import DOMAINS, NAMESPACE, RAW_POOLS
from support.operator.taskgroups import World

ROUNDS = 300
AWAY = ApiError(503, "ServiceUnavailable", "away")


class Collecting:
    """A garbage collector that acts without a pause in a thread, beside a world that has much to collect."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._stop = Event()
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._world.act()


def answers(world: World, resource: Resource[Any], requests: int = 1) -> int:
    """Return how many of these requests the API answers."""
    answered = 0
    for _ in range(requests):
        with suppress(ApiError):
            answered += len(list(world.api.list_pages(resource)))
    return answered


def test_a_fault_is_never_away_while_the_garbage_collector_acts() -> None:
    world, answered = World(), 0
    with Collecting(world):
        for _ in range(ROUNDS):
            world.api.fault = lambda verb, plural: AWAY if (verb, plural) == ("list", "pools") else None
            answered += answers(world, RAW_POOLS, 10)
            world.api.fault = lambda _verb, _plural: None
    assert answered == 0


def test_a_kind_that_is_not_served_stays_so_while_the_garbage_collector_acts() -> None:
    world, answered = World(), 0
    world.remove_kind(DOMAINS)
    with Collecting(world):
        for _ in range(ROUNDS):
            answered += answers(world, DOMAINS, 10)
    assert answered == 0


def test_the_garbage_collector_acts_while_every_request_fails_and_no_kind_is_served() -> None:
    world = World()
    uid = world.group()
    world.owned("of-the-group", uid)
    world.api.delete(CONFIGMAPS, "of-the-group", NAMESPACE, foreground=True)
    world.owned("of-nobody", "an-owner-that-is-gone")
    requests = len(world.api.calls)
    world.api.fault, world.api.served = (lambda _verb, _plural: AWAY), set()
    world.act()
    assert [key for key in world.api._objects if key[0] == "configmaps"] == []
    assert len(world.api.calls) == requests


def test_what_the_garbage_collector_deletes_is_seen_by_watches_and_held_by_finalizers() -> None:
    world = World()
    for name in ("free", "held"):
        world.owned(name, "an-owner-that-is-gone")
    world.api.merge(CONFIGMAPS, "held", {"metadata": {"finalizers": ["test.example/held"]}}, NAMESPACE)
    watch = world.api.watch(CONFIGMAPS, next(iter(world.api.list_pages(CONFIGMAPS))).resource_version)
    world.act()
    watch.close()
    seen = [(event.change, event.entry.name) for event in watch if event.entry]
    assert seen == [(Change.DELETED, "free"), (Change.MODIFIED, "held")]
    assert "deletionTimestamp" in world.api.get(CONFIGMAPS, "held", NAMESPACE)["metadata"]
