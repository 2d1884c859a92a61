"""A cache that many tenants share: the mount paths of one tenant are limited, so that the others can use it too."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import grpc
import pytest
from gkm.hoststate.names import CacheRef
from support.csi.driver import Client, driver
from support.csi.namespaces import private_namespace
from support.csi.nodes import node_files
from support.csi.rig import Rig

pytestmark = pytest.mark.mounts
SHARE, ALL = 8, 16
PATH, PRIVATE = {"mountPath": "/cache"}, {"readOnly": "false", "sizeLimit": "1Mi"}


def shared(rig: Rig) -> dict[str, str]:
    """Make a cluster cache, and return the attribute that names it."""
    name = f"shared-{rig.volume()[0]}"
    rig.files.pointer(CacheRef(None, name), digest=rig.files.entry({"a/file": name}), size_bytes=71)
    return {"clusterCacheName": name}


@contextmanager
def mounted(rig: Rig, cache: dict[str, str], namespace: str, paths: int) -> Iterator[None]:
    """Publish volumes of one namespace, each at a path of its own."""
    volumes = [rig.volume() for _ in range(paths)]
    for number, (volume, target) in enumerate(volumes):
        rig.client.publish(volume, target, {**cache, "mountPath": f"/{namespace}/{number}"}, namespace=namespace)
    yield
    for volume, target in volumes:
        rig.client.unpublish(volume, target)


@pytest.mark.parametrize("attributes", [PATH, PRIVATE, PATH | PRIVATE], ids=["path", "private", "both"])
def test_the_paths_of_one_tenant_do_not_exclude_another(rig: Rig, attributes: dict[str, str]) -> None:
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


def test_a_second_path_waits_while_others_use_all_trees(rig: Rig) -> None:
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


def test_if_unavailable_empty_starts_empty_instead_of_waiting_for_a_second_path(rig: Rig) -> None:
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


def test_the_tree_of_a_mounted_volume_with_an_unreadable_record_stays() -> None:
    """The mark of a mount says which cache it shows, and not which tree: each one may be its."""
    with node_files() as files, private_namespace() as namespace:
        with driver(files, namespace) as first, Client(first.socket) as client:
            rig = Rig(files, namespace, first, client)
            cache = shared(rig)
            volume, target = rig.volume()
            client.publish(volume, target, {**cache, "mountPath": "/of/the/pod"})
            (tree,) = files.layout.relocated_in_memory(rig.record(volume).digest).glob("[!.]*")
            files.layout.volume_record(volume).write_text("{")

        with driver(files, namespace) as second, Client(second.socket) as client:
            rig = Rig(files, namespace, second, client)
            with mounted(rig, cache, "one", SHARE), mounted(rig, cache, "another", SHARE - 1):
                pass  # their trees stay, and no volume uses them
            one_more = rig.volume()
            with suppress(grpc.RpcError):
                client.publish(*one_more, {**cache, "mountPath": "/one/more"})
            assert rig.mounts(target), "a start does not unmount what it does not know"
            assert tree.exists(), "an eviction took the tree from under a pod"
            code, text = rig.refused(*one_more, {**cache, "mountPath": "/one/more"})
            assert (code, "record of a mounted volume on this node is unreadable" in text) == ("UNAVAILABLE", True)
            assert rig.nothing_left(*one_more)

            client.unpublish(volume, target)
            client.publish(*one_more, {**cache, "mountPath": "/one/more"})
            assert not tree.exists(), "without the volume its tree is one of the unused"
            client.unpublish(*one_more)
