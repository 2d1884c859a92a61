"""Every way in which a pod may be given a volume works: groups, parts of it, several of them, several containers."""

import json

import pytest
from support.cluster.gkm_objects import MOUNT
from support.e2e.fleet import CACHE, Fleet
from support.e2e.volumes import (
    NAMED,
    NOT_ROOT,
    PRIVATE,
    container,
    delete,
    inside,
    mount,
    pod,
    ready,
    recorded,
    running,
    tree,
    volume,
)

KEY = min(path.name for path in CACHE.iterdir())
CACHED = {"cacheName": "llama"}
FOREVER = "exec sleep 86400"
GROUPED = NOT_ROOT | {"fsGroup": 2000, "fsGroupChangePolicy": "Always"}


def test_a_pod_with_an_fs_group_reads_a_cache_without_a_change_of_its_owner(fleet: Fleet, namespace: str) -> None:
    entry = ready(fleet, namespace)
    before = tree(entry)
    script = f"id -G; stat -c %u:%g {MOUNT}/{NAMED}; cat {MOUNT}/{NAMED}"
    fleet.cluster.apply(pod("user", namespace, [container(script)], [volume(CACHED)], securityContext=GROUPED))
    assert fleet.ended("user", namespace).split() == ["1000", "2000", "0:0", "llama"]
    assert tree(entry) == before


def test_a_pod_with_an_fs_group_writes_into_its_private_volume(fleet: Fleet, namespace: str) -> None:
    entry = ready(fleet, namespace)
    before = tree(entry)
    script = f"echo mine > {MOUNT}/{KEY}/mine && cat {MOUNT}/{KEY}/mine"
    given = volume(PRIVATE | CACHED)
    fleet.cluster.apply(pod("user", namespace, [container(script)], [given], securityContext=GROUPED))
    assert fleet.ended("user", namespace) == "mine\n"
    assert tree(entry) == before


@pytest.mark.parametrize("how", [{}, PRIVATE], ids=["read-only", "private"])
def test_a_container_is_given_one_directory_of_the_cache_and_nothing_is_left_of_it(
    fleet: Fleet, namespace: str, how: dict[str, str]
) -> None:
    ready(fleet, namespace)
    one = container(FOREVER, mount("/kernel", subPath=KEY))
    running(fleet, pod("user", namespace, [one], [volume(how | CACHED)]))
    listed = inside(fleet, namespace, "user", "ls /kernel").split()
    assert listed == sorted(path.name for path in (CACHE / KEY).iterdir())
    written = inside(fleet, namespace, "user", "touch /kernel/new && echo written || true")
    assert ("Read-only file system" in written) == (not how)
    delete(fleet, namespace, "user")


def test_a_volume_that_kubernetes_calls_read_only_is_one(fleet: Fleet, namespace: str) -> None:
    ready(fleet, namespace)
    reads = container(f"cat {MOUNT}/{NAMED}; touch {MOUNT}/new || true", mount(readOnly=True))
    fleet.cluster.apply(pod("user", namespace, [reads], [volume(CACHED, readOnly=True)]))
    printed = fleet.ended("user", namespace)
    assert printed.startswith("llama")
    assert "Read-only file system" in printed


def test_a_volume_that_is_both_read_only_and_private_is_refused(fleet: Fleet, namespace: str) -> None:
    ready(fleet, namespace)
    fleet.cluster.apply(
        pod("user", namespace, [container("true")], [volume(PRIVATE | CACHED, readOnly=True)]),
    )
    assert "InvalidArgument" in fleet.refused_mount("user", namespace, saying="contradicts the volume attribute")
    assert not recorded(fleet, namespace)


def test_a_container_that_mounts_a_private_volume_read_only_reads_what_another_writes(
    fleet: Fleet, namespace: str
) -> None:
    ready(fleet, namespace)
    reads = container(FOREVER, mount(readOnly=True))
    writes = container(f"echo mine > {MOUNT}/mine; {FOREVER}", name="writer")
    running(fleet, pod("user", namespace, [reads, writes], [volume(PRIVATE | CACHED)]))
    fleet.until(lambda: inside(fleet, namespace, "user", f"cat {MOUNT}/mine || true") == "mine\n", "it to be read")
    assert "Read-only file system" in inside(fleet, namespace, "user", f"touch {MOUNT}/new || true")


def test_what_an_init_container_writes_both_containers_find_wherever_they_mount_it(
    fleet: Fleet, namespace: str
) -> None:
    ready(fleet, namespace)
    first = container(f"cat {MOUNT}/{NAMED} > {MOUNT}/found", name="init", security=NOT_ROOT)
    both = [container(f"cat {at}/found; echo {at}", mount(at), name=at[1:]) for at in ("/one", "/two")]
    fleet.cluster.apply(pod("user", namespace, both, [volume(PRIVATE | CACHED)], initContainers=[first]))
    assert sorted(fleet.ended("user", namespace).splitlines()) == ["llama/one", "llama/two"]


def test_two_volumes_of_one_cache_in_a_pod_are_two(fleet: Fleet, namespace: str) -> None:
    ready(fleet, namespace)
    volumes = [volume(PRIVATE | CACHED, "mine"), volume(PRIVATE | CACHED, "other"), volume(CACHED, "shared")]
    places = [mount(f"/{one['name']}", one["name"]) for one in volumes]
    said = f"echo $at $(ls $at | grep -cx new) $(cat $at/{NAMED})"
    script = f"echo x > /mine/new; for at in /mine /other /shared; do {said}; done"
    fleet.cluster.apply(pod("user", namespace, [container(script, *places)], volumes))
    assert fleet.ended("user", namespace).splitlines() == ["/mine 1 llama", "/other 0 llama", "/shared 0 llama"]


@pytest.mark.parametrize("how", [{}, PRIVATE], ids=["read-only", "private"])
def test_with_a_mount_path_group_files_name_files_that_the_container_has(
    fleet: Fleet, namespace: str, how: dict[str, str]
) -> None:
    ready(fleet, namespace)
    given = volume({**how, "cacheName": "llama", "mountPath": "/opt/kernels"})
    running(fleet, pod("reader", namespace, [container(FOREVER, mount("/opt/kernels"))], [given]))
    groups = inside(fleet, namespace, "reader", "for g in /opt/kernels/*/__grp__*; do echo; cat $g; done").split("\n\n")
    named = [path for group in groups for path in json.loads(group)["child_paths"].values()]
    names = sorted(path for path in CACHE.rglob("*") if path.is_file() and not path.name.startswith("__grp__"))
    assert sorted(named) == [f"/opt/kernels/{path.relative_to(CACHE)}" for path in names]
    assert inside(fleet, namespace, "reader", f"cat {' '.join(sorted(named))} | wc -c").strip() == str(
        sum(path.stat().st_size for path in names)
    )
