"""The watch of a kind that is not served any more leaves nothing, whatever its thread still gets."""

from collections.abc import Callable

import pytest
from gkm.kube.discovery import KindName
from gkm.kube.resources import CONFIGMAPS
from gkm_operator.taskgroups.kinds import KindFeed, KindWatches
from gkm_operator.taskgroups.members import GroupInventory, Living, Seen, Sight
from support.kube.interposed_api import Call, InterposedApi
from support.operator.group_witness import NAMESPACE, SYSTEM
from support.operator.taskgroups import World

KIND, GROUP = KindName("", "ConfigMap"), (NAMESPACE, "g")


@pytest.fixture
def world() -> World:
    made = World()
    made.owned("c", "u")
    return made


def uid(world: World) -> str:
    return str(world.api.get(CONFIGMAPS, "c", NAMESPACE)["metadata"]["uid"])


def sight(inventory: GroupInventory, uid: str) -> Seen:
    return inventory.sight(GROUP, "u", KIND, "c", uid)


def test_a_page_that_arrives_after_the_end_of_its_watch_changes_nothing(world: World) -> None:
    inventory = GroupInventory()

    def lose(call: Call, send: Callable[[], object]) -> object:
        """Before the page is handled, the kind goes."""
        answer = send()
        if call.verb == "list":
            world.remove_kind(CONFIGMAPS)
            kinds.missing(KIND)
            kinds.follow(KIND)
        return answer

    api = InterposedApi(world.api, lose)
    kinds = KindWatches(api, SYSTEM, inventory.change, start=lambda _reflector: None)
    kinds.remember(KIND)
    (reflector,) = kinds.reflectors
    reflector._list()
    assert reflector.values() != []
    assert kinds.reflectors == []
    assert inventory.members(GROUP, "u") == []


def test_objects_of_a_watch_that_ended_are_not_gone(world: World) -> None:
    inventory, uid_ = GroupInventory(), uid(world)
    world.api.merge(CONFIGMAPS, "c", {"metadata": {"finalizers": ["a.test/b"]}}, NAMESPACE)
    world.api.delete(CONFIGMAPS, "c", NAMESPACE)
    feed = KindFeed(world.api, KIND, CONFIGMAPS, inventory.change)
    feed.reflector._list()
    assert sight(inventory, uid_) == Living(uid_, terminating=True, finalizers=("a.test/b",))
    feed.retire()
    assert sight(inventory, uid_) is Sight.UNSEEN
    assert inventory.members(GROUP, "u") == []


def test_a_late_event_of_an_old_watch_does_not_hide_what_the_new_one_shows(world: World) -> None:
    inventory, uid_ = GroupInventory(), uid(world)
    old, new = (KindFeed(world.api, KIND, CONFIGMAPS, inventory.change) for _ in range(2))
    old.reflector._list()
    old.retire()
    new.reflector._list()
    old.reflector._delete((NAMESPACE, "c"))
    assert sight(inventory, uid_) == Living(uid_)
    world.api.delete(CONFIGMAPS, "c", NAMESPACE)
    new.reflector._list()
    assert inventory.members(GROUP, "u") == []
