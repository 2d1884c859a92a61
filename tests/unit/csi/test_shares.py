"""A cache that many tenants share: how many mount paths one of them may take, and what is left to the others."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from gkm.hoststate.names import CacheRef
from support.csi.rig import Rig

pytestmark = pytest.mark.mounts
SHARE, ALL = 8, 16
PATH, PRIVATE = {"mountPath": "/cache"}, {"readOnly": "false", "sizeLimit": "1Mi"}


def shared(rig: Rig) -> dict[str, str]:
    """Make a cache of the whole cluster, and return the attribute that names it."""
    name = f"shared-{rig.volume()[0]}"
    rig.files.pointer(CacheRef(None, name), digest=rig.files.entry({"a/file": name}), size_bytes=71)
    return {"clusterCacheName": name}


@contextmanager
def mounted(rig: Rig, cache: dict[str, str], namespace: str, paths: int) -> Iterator[None]:
    """Publish volumes of one namespace at so many paths of its own."""
    volumes = [rig.volume() for _ in range(paths)]
    for number, (volume, target) in enumerate(volumes):
        rig.client.publish(volume, target, {**cache, "mountPath": f"/{namespace}/{number}"}, namespace=namespace)
    yield
    for volume, target in volumes:
        rig.client.unpublish(volume, target)


@pytest.mark.parametrize("attributes", [PATH, PRIVATE, PATH | PRIVATE], ids=["path", "private", "both"])
def test_one_tenants_paths_leave_the_cache_to_every_other(rig: Rig, attributes: dict[str, str]) -> None:
    cache = shared(rig)
    greedy = [rig.volume() for _ in range(ALL)]
    codes = []
    for number, (volume, target) in enumerate(greedy):
        asked = {**cache, "mountPath": f"/path/{number}"}
        if number < SHARE:
            rig.client.publish(volume, target, asked, namespace="greedy")
            continue
        code, text = rig.refused(volume, target, asked, namespace="greedy")
        codes.append(code)
        assert f"more than {SHARE} different mount paths" in text
        assert rig.nothing_left(volume, target)
    assert set(codes) == {"FAILED_PRECONDITION"}
    with mounted(rig, cache, "another", SHARE):
        # All of them are in use: a namespace that has none yet gets one all the same.
        for namespace in ("modest", "quiet", "small"):
            volume, target = rig.volume()
            rig.client.publish(volume, target, {**cache, **attributes}, namespace=namespace)
            assert (rig.namespace.inside(target) / "a" / "file").exists()
            rig.client.unpublish(volume, target)
    for volume, target in greedy[:SHARE]:
        rig.client.unpublish(volume, target)


def test_a_tenant_who_did_nothing_wrong_waits_for_a_second_path(rig: Rig) -> None:
    cache = shared(rig)
    asked = {**cache, "mountPath": "/second"}
    with mounted(rig, cache, "modest", 1):
        with mounted(rig, cache, "greedy", SHARE), mounted(rig, cache, "another", SHARE - 1):
            volume, target = rig.volume()
            code, text = rig.refused(volume, target, asked, namespace="modest")
            assert code == "UNAVAILABLE"
            assert text.endswith("kubelet retries")
            assert not any(other in text for other in ("greedy", "another"))
            assert rig.nothing_left(volume, target)
            # At a path that is in use already nothing has to be made.
            at = {**cache, "mountPath": "/greedy/0"}
            rig.client.publish(volume, target, at, namespace="modest")
            rig.client.unpublish(volume, target)
        rig.client.publish(volume, target, asked, namespace="modest")
        rig.client.unpublish(volume, target)


def test_who_does_not_want_to_wait_for_a_second_path_starts_empty(rig: Rig) -> None:
    cache = shared(rig)
    with (
        mounted(rig, cache, "modest", 1),
        mounted(rig, cache, "greedy", SHARE),
        mounted(rig, cache, "another", SHARE - 1),
    ):
        volume, target = rig.volume()
        rig.client.publish(
            volume, target, {**cache, "mountPath": "/second", "ifUnavailable": "empty"}, namespace="modest"
        )
        assert rig.record(volume).digest == ""
        rig.client.unpublish(volume, target)
