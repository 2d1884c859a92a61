"""A cache from a registry into a pod, on a real kubelet and containerd."""

import hashlib

import pytest
from support.cluster.gkm_objects import MOUNT
from support.e2e.fleet import CACHE, Fleet
from support.images.archives import mcv_image


def test_a_pod_reads_the_cache_as_it_was_built(fleet: Fleet, namespace: str) -> None:
    fleet.declare("llama", namespace, fleet.image("llama"))
    fleet.reaches("llama", namespace, "Ready")
    fleet.pod("reader", namespace, f"cd {MOUNT} && find . -type f -exec sha256sum {{}} +", cacheName="llama")
    printed = {line.split()[1]: line.split()[0] for line in fleet.ended("reader", namespace).splitlines()}
    files = [path for path in CACHE.rglob("*") if path.is_file()]
    assert printed == {f"./{path.relative_to(CACHE)}": hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize(
    "attempt",
    [
        f"touch {MOUNT}/new",
        f"rm -r {MOUNT}/*",
        f"chmod 777 {MOUNT}",
        f"for f in $(find {MOUNT} -type f); do echo x >> $f && exit 0; done; exit 1",
    ],
)
def test_a_pod_cannot_write_to_the_cache(fleet: Fleet, namespace: str, attempt: str) -> None:
    fleet.declare("llama", namespace, fleet.image("llama"))
    fleet.reaches("llama", namespace, "Ready")
    fleet.pod("writer", namespace, f"( {attempt} ) && echo WRITTEN || echo refused", cacheName="llama")
    printed = fleet.ended("writer", namespace)
    assert "refused" in printed
    assert "WRITTEN" not in printed
    assert "Read-only file system" in printed


def test_the_status_names_the_pods_that_use_the_cache(fleet: Fleet, namespace: str) -> None:
    fleet.declare("llama", namespace, fleet.image("llama"))
    fleet.reaches("llama", namespace, "Ready")
    fleet.pod("user", namespace, "sleep 300", cacheName="llama")

    def used() -> bool:
        return bool(fleet.cluster.get("gkmcache", "llama", namespace)["status"].get("podsUsing") == 1)

    fleet.until(used, "one pod to be counted")
    assert [pod["name"] for pod in fleet.on_node("llama", namespace)["pods"]] == ["user"]


def test_a_pod_of_another_namespace_is_refused_with_an_event_that_says_why(fleet: Fleet, namespace: str) -> None:
    fleet.declare("llama", namespace, fleet.image("llama"))
    fleet.reaches("llama", namespace, "Ready")
    stranger = fleet.new_namespace()
    fleet.pod("thief", stranger, "true", cacheName="llama", cacheNamespace=namespace)
    why = f"GKMCache {namespace}/llama belongs to another namespace"
    assert "PermissionDenied" in fleet.refused_mount("thief", stranger, saying=why)
    fleet.empty(stranger)


def test_a_cluster_cache_is_for_every_namespace(fleet: Fleet, namespace: str) -> None:
    fleet.declare("shared", None, fleet.image("shared"))
    fleet.pod("reader", namespace, f"ls {MOUNT} | wc -l", clusterCacheName="shared")
    assert fleet.ended("reader", namespace).strip() == "2"
    fleet.kubectl("delete", "clustergkmcache", "shared")


def test_a_pod_that_comes_first_waits_for_the_cache_and_its_event_says_so(fleet: Fleet, namespace: str) -> None:
    fleet.pod("early", namespace, f"ls {MOUNT}", cacheName="llama")
    why = f"GKMCache {namespace}/llama is not known"
    assert "Unavailable" in fleet.refused_mount("early", namespace, saying=why)
    fleet.declare("llama", namespace, fleet.image("llama"))
    fleet.ended("early", namespace)


def test_a_cache_for_other_gpus_is_not_fetched_and_pods_get_an_event(fleet: Fleet, namespace: str) -> None:
    fleet.declare("amd", namespace, fleet.image("amd", built=mcv_image()))
    said = fleet.reaches("amd", namespace, "Incompatible")
    assert said["incompatibleGPUs"][0]["reason"] == "BackendMismatch"
    assert not (fleet.gkm.state / "store" / "sha256" / said["digest"].removeprefix("sha256:")).exists()
    fleet.pod("user", namespace, "true", cacheName="amd")
    event = fleet.refused_mount("user", namespace, saying="hip")
    assert "FailedPrecondition" in event


def test_a_deleted_cache_stays_until_its_last_pod_has_gone(fleet: Fleet, namespace: str) -> None:
    fleet.declare("llama", namespace, fleet.image("llama"))
    digest = fleet.reaches("llama", namespace, "Ready")["digest"]
    entry = fleet.gkm.state / "store" / "sha256" / digest.removeprefix("sha256:")
    fleet.pod("user", namespace, f"while ! [ -e /stop ]; do ls {MOUNT} > /dev/null || exit 1; done", cacheName="llama")
    fleet.until(lambda: fleet.mounts(namespace), "the volume to be mounted")
    fleet.kubectl("delete", "gkmcache", "llama", "--namespace", namespace)
    fleet.reaches("llama", namespace, "Deleting")
    assert entry.exists()
    fleet.kubectl("delete", "pod", "user", "--namespace", namespace, "--grace-period=0")
    fleet.until(lambda: not entry.exists(), "the entry to be collected")
    fleet.until(
        lambda: not fleet.cluster.exists("gkmcachenode", fleet.cluster.node_name, namespace), "the node object to go"
    )
