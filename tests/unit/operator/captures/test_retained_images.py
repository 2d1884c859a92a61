"""A captured cache stays as long as a cache of its namespace names its image."""

from datetime import timedelta

import pytest
from gkm.api.config import CapturedCaches
from gkm.api.meta import timestamp
from gkm.kube.resources import GKMCACHES
from support.operator.captures import (
    NAMESPACE,
    NOW,
    REGISTRY,
    CapturesProcess,
    CapturesWorld,
    captured,
    name_of,
)
from support.operator.retention import DAY, later, world_with

BY_DIGEST = captured(1).image
BY_TAG = f"{REGISTRY}/{NAMESPACE}/triton:mine"


def user_cache(world: CapturesWorld, image: str, namespace: str = NAMESPACE, verified: str = "True") -> None:
    """Make a cache of a user that has resolved to the digest of the first capture."""
    world.own("mine", image, namespace)
    condition = {
        "type": "Verified",
        "status": verified,
        "reason": "CosignSuccess",
        "message": "",
        "lastTransitionTime": timestamp(NOW),
    }
    status = {"image": image, "resolvedDigest": BY_DIGEST.partition("@")[2], "conditions": [condition]}
    world.api.merge(GKMCACHES, "mine", {"status": status}, namespace, subresource="status")


@pytest.mark.parametrize("image", [BY_DIGEST, BY_TAG], ids=["by digest", "by tag"])
def test_what_a_cache_of_a_user_names_stays(image: str) -> None:
    world = world_with(1)
    user_cache(world, image)
    process = later(world)
    assert world.names() == [name_of(1), "mine"]
    assert process.condition(name_of(1)) == ("True", "NamedByCache")
    world.api.delete(GKMCACHES, "mine", NAMESPACE)
    later(world)
    assert world.names() == []


@pytest.mark.parametrize("image", [BY_DIGEST, BY_TAG], ids=["by digest", "by tag"])
def test_a_cache_of_another_namespace_retains_nothing_and_is_not_published(image: str) -> None:
    world = world_with(1)
    user_cache(world, image, "others")
    later(world)
    assert world.names() == ["mine"]
    (note,) = world.notes("Ended")
    assert "others" not in note


@pytest.mark.parametrize("namespace", [NAMESPACE, "others"])
@pytest.mark.parametrize(
    ("image", "verified"),
    [
        (f"nowhere.test/x@{BY_DIGEST.partition('@')[2]}", "True"),
        (f"{REGISTRY}/others/triton@{BY_DIGEST.partition('@')[2]}", "True"),
        (BY_DIGEST, "False"),
        (BY_TAG, "Unknown"),
        ("UPPER/case:1", "True"),
    ],
    ids=["registry", "repository", "refused", "unknown", "no reference"],
)
def test_a_digest_that_somebody_writes_down_retains_nothing(image: str, verified: str, namespace: str) -> None:
    world = world_with(1)
    user_cache(world, image, namespace, verified)
    later(world)
    assert world.names() == ["mine"]


def test_two_captured_caches_of_one_image_end_each_by_its_own_age() -> None:
    same = captured(1).image
    world = CapturesWorld(CapturedCaches(max_age=DAY))
    world.announce("node-1", captured(1), captured(2, image=same, age=-DAY / 2, driver="580.1"))
    world.now = NOW + timedelta(seconds=DAY / 2)
    CapturesProcess(world).run()
    later(world, 1.2 * DAY)
    assert world.names() == [name_of(2)]
    later(world)
    assert world.names() == []
