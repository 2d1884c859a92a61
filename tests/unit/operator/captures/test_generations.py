"""Captures of a family get numbers, one after the other for each hardware; what had a number never gets another one."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gkm.api.config import CapturedCaches
from gkm.api.errors import GKMError, Reason
from gkm.api.nodes import CapturedImage
from gkm.kube.resources import CLUSTERGKMCACHES, GKMCACHES, WATCHED_CACHES
from gkm_operator.captures.objects import captured_cache, merged_announcements
from gkm_operator.captures.retention import MAX_EARLIER, next_generation
from msgspec import structs
from support.kube.interposed_api import Call
from support.operator.captures import (
    NAMESPACE,
    NOW,
    REGISTRY,
    CapturesProcess,
    CapturesWorld,
    captured,
    digest,
    listed,
    name_of,
    of_family,
)
from support.operator.retention import DAY, later

FIRST, SECOND, THIRD = of_family(1, age=30), of_family(2, base=1, age=20), of_family(3, base=2, age=10)


def registered(*announced: CapturedImage, world: CapturesWorld | None = None, versions: int = 10) -> CapturesWorld:
    """Return a world in which these captures were announced, and registered, one after the other."""
    world = world or CapturesWorld(CapturedCaches(max_age=DAY, versions=versions))
    for number in range(1, len(announced) + 1):
        world.announce("node-1", *announced[:number])
        CapturesProcess(world).run(2)
    return world


def numbers(world: CapturesWorld, *captures: CapturedImage) -> list[int | None]:
    found = world.generations()
    return [found.get(each.name) for each in captures]


def test_a_capture_of_a_family_joins_it_as_its_first_generation() -> None:
    (cache,) = registered(FIRST).caches()
    assert cache["spec"] == {"image": FIRST.image, "family": "llama", "generation": 1}
    assert cache["metadata"]["name"] != name_of(1)


def test_each_capture_that_extends_a_member_is_the_next_generation() -> None:
    world = registered(FIRST, SECOND, THIRD)
    assert numbers(world, FIRST, SECOND, THIRD) == [1, 2, 3]


def test_generations_of_all_hardware_have_one_order() -> None:
    """A node whose driver was updated fits captures of both keys, and the newer one has the larger number."""
    other = of_family(9, driver="580.1")
    world = registered(FIRST, SECOND, other)
    assert numbers(world, FIRST, SECOND, other) == [1, 2, 3]


def test_the_same_content_has_an_object_in_each_family_and_one_without() -> None:
    world = CapturesWorld()
    world.announce("node-1", captured(1), of_family(1, "llama"), of_family(1, "qwen"))
    CapturesProcess(world).run()
    assert sorted(each["spec"].get("family", "") for each in world.caches()) == ["", "llama", "qwen"]


def test_a_family_of_another_namespace_of_the_same_name_is_another_one() -> None:
    world = registered(FIRST)
    world.announce("node-1", of_family(2, namespace="others", base=1), namespace="others")
    CapturesProcess(world).run()
    # The base is a member of the other family only: here it is none, and the capture is complete by itself.
    assert {each["metadata"]["namespace"]: each["spec"]["generation"] for each in world.caches()} == {
        NAMESPACE: 1,
        "others": 1,
    }


def test_captures_of_shared_namespaces_have_their_family_in_the_cluster() -> None:
    world = CapturesWorld(CapturedCaches(cluster_namespaces=["ml-*"]))
    world.announce("node-1", FIRST)
    CapturesProcess(world).run()
    world.announce("node-1", FIRST, SECOND)
    CapturesProcess(world).run()
    assert world.generations(resource=CLUSTERGKMCACHES) == {FIRST.name: 1, SECOND.name: 2}
    assert world.caches() == []


@pytest.mark.parametrize(
    "changes",
    [
        {"family": "qwen"},
        {"family": "", "base": None},
        {"family": ""},
        {"family": "../llama"},
        {"family": "Llama"},
        {"family": "llama\n"},
        {"base": f"{digest(1)}\n"},
    ],
)
def test_a_family_or_a_base_that_no_agent_would_name_is_refused_and_never_read(changes: dict[str, Any]) -> None:
    world = CapturesWorld()
    world.announce("node-1", structs.replace(of_family(2, base=1), **changes))
    CapturesProcess(world).run()
    assert world.caches() == []
    assert world.images.proofs == []
    assert any(Reason.METADATA_INVALID.value in note for note in world.notes("NotRegistered"))


def test_a_false_claim_of_a_base_hides_no_true_one() -> None:
    world = registered(FIRST)
    forged = of_family(2, base=7, age=20)
    world.announce("stolen", forged)
    world.announce("node-1", FIRST, SECOND)
    world.images.claims_refused.add((forged.image, "llama", digest(7)))
    CapturesProcess(world).run(10)
    assert numbers(world, FIRST, SECOND) == [1, 2]


# What had a number once.


def test_a_generation_that_ended_is_not_registered_again_while_a_later_one_is_there() -> None:
    world = registered(FIRST, SECOND, THIRD, versions=1)
    assert numbers(world, FIRST, SECOND, THIRD) == [None, None, 3]
    CapturesProcess(world).run(10)
    assert numbers(world, FIRST, SECOND, THIRD) == [None, None, 3]
    assert len(world.images.proofs) == 3


def test_a_generation_that_extended_a_cache_of_a_user_does_not_come_back_either() -> None:
    world = CapturesWorld(CapturedCaches(max_age=DAY, versions=1))
    world.own("llama", f"{REGISTRY}/team/llama@{digest(77)}")
    first, second = of_family(1, base=77), of_family(2, base=77)
    registered(first, second, world=world)
    CapturesProcess(world).run(10)
    assert numbers(world, first, second) == [None, 2]


def test_a_generation_that_somebody_deleted_does_not_come_back_as_the_newest_one() -> None:
    world = registered(FIRST, SECOND, THIRD)
    world.api.delete(GKMCACHES, SECOND.name, NAMESPACE)
    CapturesProcess(world).run(10)
    assert numbers(world, FIRST, SECOND, THIRD) == [1, None, 3]


def test_the_newest_generation_that_somebody_deleted_comes_back_with_its_number() -> None:
    world = registered(FIRST, SECOND)
    world.api.delete(GKMCACHES, SECOND.name, NAMESPACE)
    CapturesProcess(world).run(10)
    assert numbers(world, FIRST, SECOND) == [1, 2]


def test_when_all_objects_are_lost_the_newest_capture_is_the_first_generation() -> None:
    world = CapturesWorld()
    world.announce("node-1", FIRST, SECOND, THIRD)
    CapturesProcess(world).run(10)
    assert numbers(world, FIRST, SECOND, THIRD) == [None, None, 1]


def test_what_a_generation_remembers_is_held_by_no_watch() -> None:
    """With 128 contents, a cache would exceed what a watch holds of an object, and no node would pull it."""
    world = registered(FIRST, SECOND)
    (found,) = (each for each in listed(world.api, WATCHED_CACHES) if each.metadata.name == SECOND.name)
    assert "gkm.io/captured-content" in found.metadata.annotations
    assert "gkm.io/captured-earlier" not in found.metadata.annotations
    whole = world.api.get(GKMCACHES, SECOND.name, NAMESPACE)
    assert whole.metadata.annotations["gkm.io/captured-earlier"] == f"{1:012x}"


def test_a_generation_remembers_as_many_as_it_can() -> None:
    one = captured_cache(registered(FIRST).api.get(GKMCACHES, FIRST.name, NAMESPACE), REGISTRY)
    assert one is not None
    full = replace(one, earlier=tuple(f"{number:012x}" for number in range(1000, 1000 + MAX_EARLIER)))
    (announced,), _ = merged_announcements(NAMESPACE, [("n", SECOND)], REGISTRY, NOW)  # type: ignore[list-item]
    made = next_generation(announced, [full], [])
    assert (len(made.earlier), made.earlier[:2]) == (MAX_EARLIER, (f"{1:012x}", f"{1000:012x}"))


# What a capture extends.


def test_a_capture_that_extends_what_is_gone_is_not_registered_beside_a_generation() -> None:
    world = registered(FIRST)
    lost = of_family(5, base=4, age=5)
    world.announce("node-1", FIRST, lost)
    CapturesProcess(world).run(10)
    assert numbers(world, FIRST, lost) == [1, None]


def test_of_many_first_captures_of_a_new_gpu_one_is_registered() -> None:
    world = CapturesWorld()
    for number in range(1, 30):
        world.announce(f"node-{number}", of_family(number, age=float(number)))
    CapturesProcess(world).run(10)
    assert list(world.generations().values()) == [1]
    assert world.notes("NotRegistered") == []


def test_where_no_generation_counts_any_more_a_capture_without_a_base_is_the_next_one() -> None:
    world = registered(FIRST)
    world.verify(FIRST.name, "False")
    fresh = of_family(5, age=5)
    world.announce("node-1", FIRST, fresh)
    CapturesProcess(world).run()
    assert numbers(world, FIRST, fresh) == [1, 2]


# Numbers are those of the API server.


def test_a_watch_that_lags_behind_makes_no_number_twice() -> None:
    world = registered(FIRST)
    second, third = of_family(2, base=1, age=20), of_family(3, base=1, age=10)
    world.announce("node-1", FIRST, second, third)
    process = CapturesProcess(world)
    process.controller.reconciler.reconcile(NAMESPACE)
    # No watch has shown the new object.
    process.controller.reconciler.reconcile(NAMESPACE)
    assert sorted(world.generations().values()) == [1, 2, 3]


def test_a_second_first_capture_is_refused_although_no_watch_has_shown_the_first_one() -> None:
    world = CapturesWorld()
    world.announce("node-1", of_family(1), of_family(2, age=5))
    process = CapturesProcess(world)
    process.controller.reconciler.reconcile(NAMESPACE)
    process.controller.reconciler.reconcile(NAMESPACE)
    assert list(world.generations().values()) == [1]


def test_a_leader_whose_request_arrives_late_leaves_one_object_of_each_number() -> None:
    world = registered(FIRST)
    mine, theirs = of_family(2, base=1, age=20), of_family(3, base=1, age=10)
    world.announce("node-1", FIRST, mine, theirs)

    def other_leader_creates(call: Call, send: Callable[[], Any]) -> Any:  # noqa: ANN401 -- any answer
        if call.verb == "create" and call.name == theirs.name:
            world.own(mine.name, mine.image, family="llama", generation=2)
            (template,) = (each for each in world.caches() if each["metadata"]["name"] == FIRST.name)
            content = {"gkm.io/captured-content": mine.content_digest}
            marks = template["metadata"]["annotations"] | content
            metadata = {"labels": template["metadata"]["labels"], "annotations": marks}
            world.api.merge(GKMCACHES, mine.name, {"metadata": metadata}, NAMESPACE)
        return send()

    CapturesProcess(world, other_leader_creates).run(1)
    assert list(world.generations().values()) == [1, 2, 2]
    CapturesProcess(world).run()
    assert sorted(world.generations().values()) == [1, 2, 3]


@pytest.mark.parametrize(("number", "following"), [(7, 8), (1_000_000, 1_000_001), (2**31 - 1, 1)])
def test_a_number_that_a_user_wrote_counts_unless_it_leaves_no_place_above(number: int, following: int) -> None:
    world = CapturesWorld()
    world.own("mine", "registry.test/team/own:1", family="llama", generation=number)
    registered(FIRST, SECOND, world=world)
    assert numbers(world, FIRST, SECOND) == [following, following + 1]


def test_a_cache_of_a_user_that_has_the_name_is_neither_replaced_nor_numbered() -> None:
    world = CapturesWorld()
    world.own(FIRST.name, "registry.test/team/own:1")
    world.announce("node-1", FIRST)
    CapturesProcess(world).run()
    (cache,) = world.caches()
    assert cache["spec"] == {"image": "registry.test/team/own:1"}
    assert any("a cache of this name exists, which a user created" in note for note in world.notes("NotRegistered"))


def test_a_generation_whose_family_was_changed_is_not_ours() -> None:
    world = registered(FIRST)
    world.api.merge(GKMCACHES, FIRST.name, {"spec": {"family": "qwen"}}, NAMESPACE)
    later(world)
    assert world.names() == [FIRST.name]


# Retention.


def test_of_a_family_the_newest_generations_stay_whatever_their_times() -> None:
    # Each pod started earlier than the one before, and ended later.
    captures = [of_family(number, base=number - 1, age=60.0 * number) for number in (1, 2, 3)]
    world = registered(*captures, versions=2)
    assert numbers(world, *captures) == [None, 2, 3]
    assert {note.partition(":")[0] for note in world.notes("Ended")} == {"Superseded"}


def test_a_pinned_generation_never_ends_and_counts_for_no_other_one() -> None:
    world = registered(FIRST)
    world.api.merge(GKMCACHES, FIRST.name, {"spec": {"pinned": True}}, NAMESPACE)
    world.settings = CapturedCaches(max_age=DAY, versions=1)
    registered(FIRST, SECOND, THIRD, world=world)
    assert numbers(world, FIRST, SECOND, THIRD) == [1, None, 3]
    process = later(world)
    assert numbers(world, FIRST, SECOND, THIRD) == [1, None, None]
    assert process.condition(FIRST.name) == ("True", "Pinned")
    world.api.merge(GKMCACHES, FIRST.name, {"spec": {"pinned": None}}, NAMESPACE)
    later(world)
    assert world.generations() == {}


def test_the_newest_verified_generation_does_not_end_for_newer_ones_that_are_not_verified() -> None:
    world = registered(FIRST)
    world.verify(FIRST.name)
    world.settings = CapturedCaches(max_age=DAY, versions=1)
    registered(FIRST, SECOND, THIRD, world=world)
    assert numbers(world, FIRST, SECOND, THIRD) == [1, None, 3]
    assert CapturesProcess(world).condition(FIRST.name) is None
    world.verify(THIRD.name)
    CapturesProcess(world).run()
    assert numbers(world, FIRST, SECOND, THIRD) == [None, None, 3]


def test_zero_versions_end_a_verified_generation_too() -> None:
    world = registered(FIRST)
    world.verify(FIRST.name)
    world.settings = CapturedCaches(versions=0)
    later(world, 0.0)
    assert world.generations() == {}


def test_a_capture_of_a_family_that_its_signers_state_to_be_too_old_is_not_registered() -> None:
    world = CapturesWorld(CapturedCaches(max_age=DAY))
    world.images.times[FIRST.image] = NOW - timedelta(days=3)
    world.announce("stolen", FIRST)
    CapturesProcess(world).run(10)
    assert world.caches() == []
    assert len(world.images.proofs) == 1
    assert "too old" in world.notes("NotRegistered")[0]


def test_a_family_that_is_not_proven_gets_no_generation() -> None:
    world = CapturesWorld()
    world.images.errors[FIRST.image] = GKMError(Reason.SIGNATURE_MISSING, "no trusted statement")
    world.announce("stolen", FIRST)
    CapturesProcess(world).run()
    assert world.caches() == []
