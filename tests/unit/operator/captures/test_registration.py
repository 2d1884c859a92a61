"""Announced captures become caches of their namespace, once, and only if everything about them is as GKM makes it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gkm.api.config import CapturedCaches
from gkm.api.errors import GKMError, Reason
from gkm.api.nodes import CapturedImage
from gkm.hoststate.pacing import Backoff
from gkm.images.captured.content import cache_name
from gkm.kube.resources import CLUSTERGKMCACHES, GKMCACHES
from gkm_operator.captures.reconciler import PER_PASS, STABLE_SECONDS
from support.operator.captures import (
    NAMESPACE,
    NOW,
    REGISTRY,
    CapturesProcess,
    CapturesWorld,
    captured,
    name_of,
)


def registered(*announced: CapturedImage) -> CapturesWorld:
    world = CapturesWorld()
    world.announce("node-1", *announced)
    CapturesProcess(world).run()
    return world


def test_an_announced_capture_becomes_a_cache_with_its_hardware_in_labels() -> None:
    world = registered(captured())
    (cache,) = world.caches()
    assert cache["metadata"]["name"] == name_of(1)
    assert cache["metadata"]["namespace"] == NAMESPACE
    assert cache["spec"] == {"image": captured().image}
    assert cache["metadata"]["labels"] == {
        "gkm.io/captured-namespace": NAMESPACE,
        "gkm.io/captured-runtime": "triton",
        "gkm.io/captured-version": "3.4.0_cu128",
        "gkm.io/captured-backend": "cuda",
        "gkm.io/captured-arch": "sm_90",
        "gkm.io/captured-driver": "570.86.15",
        "app.kubernetes.io/managed-by": "gkm",
    }
    assert cache["metadata"]["annotations"]["gkm.io/captured-hardware"] == "cuda-sm_90-r570-triton-3.4.0+cu128"


def test_two_nodes_that_announce_the_same_have_one_cache() -> None:
    world = CapturesWorld()
    for node in ("node-1", "node-2"):
        world.announce(node, captured(age=5))
    process = CapturesProcess(world)
    process.run(10)
    CapturesProcess(world).run(10)
    assert world.names() == [name_of(1)]
    assert len(world.images.proofs) == 1


def test_what_is_not_announced_is_not_registered() -> None:
    states = [captured(number, state=state) for number, state in enumerate(["Waiting", "Duplicate", "Refused"], 1)]
    assert registered(*states).caches() == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"image": f"{REGISTRY}/others/triton@sha256:{'1' * 64}"}, Reason.NOT_ALLOWED),
        ({"image": f"{REGISTRY}/ml-apps/vllm@sha256:{'1' * 64}"}, Reason.NOT_ALLOWED),
        ({"image": f"{REGISTRY}/ml-apps/triton/x@sha256:{'1' * 64}"}, Reason.NOT_ALLOWED),
        ({"image": f"registry.test/captured/../captured/ml-apps/triton@sha256:{'1' * 64}"}, Reason.NOT_ALLOWED),
        ({"image": f"{REGISTRY}/ml-apps/triton:tag@sha256:{'1' * 64}"}, Reason.NOT_ALLOWED),
        ({"image": f"{REGISTRY}/ml-apps/triton:tag"}, Reason.NOT_ALLOWED),
        ({"image": f"{REGISTRY}/ml-apps/triton@sha256:1"}, Reason.NOT_ALLOWED),
        ({"image": ""}, Reason.NOT_ALLOWED),
        ({"name": "llama"}, Reason.METADATA_INVALID),
        ({"content_digest": None}, Reason.METADATA_INVALID),
        ({"content_digest": f"sha256:{'1' * 64}\n"}, Reason.METADATA_INVALID),
        ({"arch": "sm_100"}, Reason.METADATA_INVALID),
        ({"arch": "../.."}, Reason.METADATA_INVALID),
        ({"runtime": "kernel"}, Reason.METADATA_INVALID),
        ({"runtime": "triton-vllm"}, Reason.METADATA_INVALID),
        ({"runtime": ""}, Reason.METADATA_INVALID),
        ({"backend": "metal"}, Reason.METADATA_INVALID),
        ({"driver": "570\n"}, Reason.METADATA_INVALID),
        ({"version": "3.4.0/x"}, Reason.METADATA_INVALID),
        ({"time": None}, Reason.METADATA_INVALID),
        ({"time": "2026-01-01T00:00:00"}, Reason.METADATA_INVALID),
        ({"time": "soon"}, Reason.METADATA_INVALID),
        ({"time": "0001-01-01T00:00:00+23:59"}, Reason.METADATA_INVALID),
        ({"time": "9999-12-31T23:59:59-23:59"}, Reason.METADATA_INVALID),
        ({"time": "9999-12-31T00:00:00Z"}, Reason.METADATA_INVALID),
        ({"time": "2026-03-01T12:01:01Z"}, Reason.METADATA_INVALID),
    ],
)
def test_what_an_agent_would_not_announce_is_refused_and_never_read(changes: dict[str, Any], reason: Reason) -> None:
    world = registered(captured(**changes))
    assert world.caches() == []
    assert world.images.proofs == []
    assert world.events() == [("NotRegistered", "node-1")]
    (note,) = world.notes("NotRegistered")
    assert f": {reason.value}: " in note


def test_a_capture_of_two_runtimes_is_registered_under_both_names() -> None:
    honest = captured(1)
    assert honest.content_digest is not None
    several: dict[str, Any] = {
        "runtime": "vllm-triton",
        "version": "",
        "name": cache_name("vllm-triton", "sm_90", honest.content_digest),
        "image": honest.image.replace("/triton@", "/vllm-triton@"),
    }
    (made,) = registered(captured(1, **several)).caches()
    assert made["metadata"]["name"] == several["name"]
    assert made["metadata"]["labels"]["gkm.io/captured-runtime"] == "vllm-triton"


def test_a_fault_of_one_announcement_does_not_hide_the_others() -> None:
    world = registered(captured(1, name="llama"), captured(2))
    assert world.names() == [name_of(2)]


def test_an_image_that_proves_nothing_is_refused_and_tried_again_later() -> None:
    world = CapturesWorld()
    world.images.errors[captured().image] = GKMError(Reason.SIGNATURE_MISSING, "no signature was found")
    world.announce("node-1", captured())
    process = CapturesProcess(world)
    process.run(20)
    assert len(world.images.proofs) == 1
    assert world.caches() == []
    assert world.events() == [("NotRegistered", "node-1")]
    world.images.errors.clear()
    process.seconds += 31.0
    process.run()
    assert world.names() == [name_of(1)]


def test_the_clock_of_a_node_may_be_a_minute_ahead() -> None:
    assert registered(captured(age=-60)).names() == [name_of(1)]


def test_the_time_of_a_cache_is_the_signed_one() -> None:
    world = CapturesWorld()
    world.images.times[captured().image] = NOW - timedelta(days=3)
    world.announce("stolen", captured())
    CapturesProcess(world).run()
    (cache,) = world.caches()
    assert cache["metadata"]["annotations"]["gkm.io/captured-time"] == "2026-02-26T12:00:00Z"


def test_a_capture_that_its_signers_state_to_be_too_old_is_not_registered() -> None:
    world = CapturesWorld(CapturedCaches(max_age=86_400.0))
    world.images.times[captured().image] = NOW - timedelta(days=3)
    world.announce("stolen", captured())
    CapturesProcess(world).run(20)
    assert world.caches() == []
    assert len(world.images.proofs) == 1
    assert "too old" in world.notes("NotRegistered")[0]


def test_what_somebody_deletes_again_and_again_comes_back_later_and_later() -> None:
    world = registered()
    process = CapturesProcess(world, backoff=Backoff(30.0, 3600.0))
    world.announce("node-1", captured())
    process.run(2)
    for pause in (30.0, 60.0, 120.0):
        world.api.delete(GKMCACHES, name_of(1), NAMESPACE)
        # Half of a pause is fixed.
        process.seconds += pause / 2 - 1.0
        process.run(2)
        assert world.names() == []
        process.seconds += pause / 2 + 2.0
        process.run(2)
        assert world.names() == [name_of(1)]
    world.api.delete(GKMCACHES, name_of(1), NAMESPACE)
    process.seconds += 240.0 + STABLE_SECONDS + 1.0
    process.run(2)
    world.api.delete(GKMCACHES, name_of(1), NAMESPACE)
    process.seconds += 31.0
    process.run(2)
    assert world.names() == [name_of(1)]


def test_a_cache_of_a_user_that_has_the_name_is_never_replaced_or_ended() -> None:
    world = CapturesWorld()
    world.own(name_of(1), "registry.test/team/own:1")
    world.announce("node-1", captured())
    CapturesProcess(world).run()
    world.now = NOW.replace(year=2027)
    CapturesProcess(world).run()
    (cache,) = world.caches()
    assert cache["spec"]["image"] == "registry.test/team/own:1"
    assert "labels" not in cache["metadata"]
    assert any("a cache of this name exists, which a user created" in note for note in world.notes("NotRegistered"))


def test_a_cache_that_somebody_changed_is_not_ours_any_more() -> None:
    world = registered(captured())
    world.api.merge(GKMCACHES, name_of(1), {"spec": {"image": "registry.test/team/own:1"}}, NAMESPACE)
    world.now = NOW.replace(year=2027)
    CapturesProcess(world).run()
    assert world.names() == [name_of(1)]


def test_a_capture_stays_in_its_namespace_unless_the_configuration_shares_it() -> None:
    shared = CapturesWorld(CapturedCaches(cluster_namespaces=["ml-*"]))
    shared.announce("node-1", captured())
    shared.announce("node-1", captured(2, namespace="others"), namespace="others")
    process = CapturesProcess(shared)
    process.run()
    assert shared.names(CLUSTERGKMCACHES) == [name_of(1)]
    assert [each["metadata"]["namespace"] for each in shared.caches()] == ["others"]
    assert sorted(shared.images.proofs) == [(captured(1).image, True), (captured(2, namespace="others").image, False)]
    assert process.condition(name_of(1), None) == ("True", "Current")


def test_what_is_not_shared_any_more_goes_back_to_its_namespace() -> None:
    shared = CapturesWorld(CapturedCaches(cluster_namespaces=["ml-*"]))
    shared.announce("node-1", captured())
    CapturesProcess(shared).run()
    after = replace(shared, settings=CapturedCaches())
    CapturesProcess(after).run()
    assert after.names(CLUSTERGKMCACHES) == []
    assert after.names() == [name_of(1)]
    assert any(note.startswith("NotOffered: ") for note in after.notes("Ended"))


def test_what_is_not_shared_any_more_ends_also_without_an_announcement() -> None:
    shared = CapturesWorld(CapturedCaches(cluster_namespaces=["ml-*"]))
    shared.announce("node-1", captured())
    CapturesProcess(shared).run()
    shared.announce("node-1")
    after = replace(shared, settings=CapturedCaches())
    CapturesProcess(after).run()
    assert after.names(CLUSTERGKMCACHES) == after.names() == []


@pytest.mark.parametrize(
    "changes",
    [
        {"metadata": {"name": "llama"}},
        {"metadata": {"labels": {"gkm.io/captured-namespace": "others"}}},
        {"metadata": {"annotations": {"gkm.io/captured-time": "2026-01-01T00:00:00"}}},
        {"metadata": {"annotations": {"gkm.io/captured-content": f"sha256:{'0' * 64}"}}},
        {"metadata": {"labels": {"gkm.io/captured-runtime": "vllm"}}},
        {"spec": {"image": f"{REGISTRY}/others/triton@sha256:{'1' * 64}"}},
        {"spec": {"image": f"{REGISTRY}/ml-apps/triton:1"}},
        {
            "metadata": {"labels": {"gkm.io/captured-namespace": "others"}},
            "spec": {"image": f"{REGISTRY}/others/triton@sha256:{'1' * 64}"},
        },
    ],
)
def test_an_object_whose_marks_do_not_fit_together_is_not_ours(changes: dict[str, dict[str, Any]]) -> None:
    (made,) = registered(captured()).caches()
    for part, values in changes.items():
        for key, value in values.items():
            known = made[part].get(key)
            made[part][key] = known | value if isinstance(known, dict) else value
    del made["metadata"]["uid"], made["metadata"]["resourceVersion"]
    world = CapturesWorld()
    world.api.create(GKMCACHES, made)
    world.now = NOW.replace(year=2027)
    CapturesProcess(world).run()
    assert world.names() == [made["metadata"]["name"]]


def test_many_announcements_are_registered_a_few_in_a_pass_the_newest_first() -> None:
    world = CapturesWorld(CapturedCaches(versions=32))
    world.announce("node-1", *(captured(number, age=number) for number in range(1, 33)))
    process = CapturesProcess(world)
    process.run(1)
    assert world.names() == [name_of(number) for number in range(1, PER_PASS + 1)]
    process.run(4)
    assert len(world.names()) == 32


def test_a_process_that_does_not_lead_writes_nothing() -> None:
    world = CapturesWorld(leads=False)
    world.announce("node-1", captured())
    CapturesProcess(world).run()
    assert world.caches() == []


def test_the_event_of_a_new_cache_is_sent_once_whoever_sends_it() -> None:
    world = registered(captured())
    (cache,) = world.caches()
    world.api.merge(GKMCACHES, name_of(1), {"metadata": {"creationTimestamp": "2026-03-01T11:59:00Z"}}, NAMESPACE)
    for _ in range(2):
        CapturesProcess(world).run(2)
    assert world.events() == [("Registered", name_of(1))]
    assert cache["spec"]["image"] in world.notes("Registered")[0]


def test_a_cache_that_was_registered_long_ago_has_no_new_event() -> None:
    world = registered(captured())
    world.api.merge(GKMCACHES, name_of(1), {"metadata": {"creationTimestamp": "2026-03-01T11:57:59Z"}}, NAMESPACE)
    CapturesProcess(world).run(2)
    assert world.events() == []
