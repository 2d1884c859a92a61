"""What a pod can do with its volume and what it cannot (docs/design/volumes.md), on a real kubelet and containerd."""

import json
from hashlib import sha256

import pytest
from support.cluster.gkm_objects import MOUNT, Object
from support.e2e.fleet import CACHE, Fleet
from support.e2e.volumes import (
    NAMED,
    NOT_ROOT,
    PRIVATE,
    ROOT,
    container,
    delete,
    inside,
    layout,
    left,
    mounted,
    pod,
    ready,
    recorded,
    running,
    tree,
    volume,
)

KERNEL = f"{MOUNT}/{min(path.name for path in CACHE.iterdir())}"
WHO = pytest.mark.parametrize("security", [ROOT, NOT_ROOT], ids=["root", "not-root"])
ATTEMPTS = {
    f"touch {MOUNT}/new": "Read-only file system",
    f"echo x >> {MOUNT}/{NAMED}": "Read-only file system",
    f"rm {MOUNT}/{NAMED}": "Read-only file system",
    f"mkdir {KERNEL}/new": "Read-only file system",
    f"chmod 777 {MOUNT}/{NAMED}": "Read-only file system",
    f"chown 1000 {MOUNT}/{NAMED}": "Read-only file system",
    f"mknod {MOUNT}/null c 1 3": "Read-only file system",
    f"ln -s /etc {MOUNT}/etc": "Read-only file system",
    f"mount -o remount,rw {MOUNT}": "permission denied",
    f"mount -o remount,bind,rw {MOUNT}": "permission denied",
    f"cat {MOUNT}/../files.json": "No such file or directory",
    f"cat {KERNEL}/../../files.json": "No such file or directory",
}
"""What a pod tries, and why it is refused. files.json lies beside what pods see of an entry in the store."""
FOREVER = "exec sleep 86400"


@WHO
def test_nothing_that_a_pod_tries_changes_its_read_only_volume_or_leads_out_of_it(
    fleet: Fleet, namespace: str, security: Object
) -> None:
    entry = ready(fleet, namespace)
    before = tree(entry)
    assert (entry.parent / "files.json").is_file()
    tries = [f"why=$( ( {attempt} ) 2>&1 ) && echo 'DONE {attempt}' || echo \"refused: $why\"" for attempt in ATTEMPTS]
    fleet.cluster.apply(
        pod("writer", namespace, [container("; ".join(tries), security=security)], [volume({"cacheName": "llama"})])
    )
    printed = fleet.ended("writer", namespace).splitlines()
    refusals = [line for line in printed if line.startswith("refused: ")]
    assert all(why in line for why, line in zip(ATTEMPTS.values(), refusals, strict=True)), refusals
    assert not [line for line in printed if line.startswith("DONE ")]
    assert tree(entry) == before


def test_a_privileged_pod_that_remounts_its_read_only_volume_still_cannot_write(fleet: Fleet, namespace: str) -> None:
    entry = ready(fleet, namespace)
    before = tree(entry)
    script = "; ".join(f"mount -o remount,{how} {MOUNT}; touch {MOUNT}/new" for how in ("rw", "bind,rw", "rw,bind"))
    privileged = container(f"{script}; true", security={"privileged": True})
    fleet.cluster.apply(pod("writer", namespace, [privileged], [volume({"cacheName": "llama"})]))
    printed = fleet.ended("writer", namespace)
    assert printed.count(f"touch: {MOUNT}/new: Read-only file system") == 3
    assert tree(entry) == before


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"ifUnavailable": "empty"},
        {"readOnly": "false", "mountPath": MOUNT},
        {"csi.storage.k8s.io/pod.namespace": "{owner}"},
    ],
    ids=["plain", "would start empty", "private", "forged namespace"],
)
def test_a_pod_never_gets_the_cache_of_another_tenant(fleet: Fleet, namespace: str, attributes: dict[str, str]) -> None:
    ready(fleet, namespace)
    stranger = fleet.new_namespace()
    given = {key: value.format(owner=namespace) for key, value in attributes.items()}
    try:
        fleet.pod("thief", stranger, "true", **given, cacheName="llama", cacheNamespace=namespace)
        assert "PermissionDenied" in fleet.refused_mount("thief", stranger, saying="belongs to another namespace")
        assert not recorded(fleet, stranger)
    finally:
        fleet.empty(stranger)


@WHO
def test_a_pod_of_any_user_writes_everywhere_in_its_private_volume(
    fleet: Fleet, namespace: str, security: Object
) -> None:
    entry = ready(fleet, namespace)
    before = tree(entry)
    steps = [
        f"touch {MOUNT}/new",
        f"touch {KERNEL}/new",
        f"mkdir -p {MOUNT}/kernel/deep",
        f"mv {KERNEL}/add_kernel.ptx {MOUNT}/kernel/deep",
        f"rm {KERNEL}/add_kernel.ttir",
        f"rm {MOUNT}/{NAMED}",
        f"echo mine > {MOUNT}/{NAMED}",
        f"cat {MOUNT}/{NAMED}",
    ]
    made = pod(
        "writer",
        namespace,
        [container(" && ".join(steps), security=security)],
        [volume(PRIVATE | {"cacheName": "llama"})],
    )
    fleet.cluster.apply(made)
    assert fleet.ended("writer", namespace) == "mine\n"
    assert tree(entry) == before


def test_what_a_pod_writes_is_seen_by_no_other_pod_of_the_cache(fleet: Fleet, namespace: str) -> None:
    ready(fleet, namespace)
    given = volume(PRIVATE | {"cacheName": "llama"})
    running(fleet, pod("writer", namespace, [container(f"echo mine > {MOUNT}/mine; {FOREVER}")], [given]))
    fleet.cluster.apply(pod("private", namespace, [container(f"ls {MOUNT}; cat {MOUNT}/{NAMED}")], [given]))
    fleet.pod("reader", namespace, f"ls {MOUNT}; cat {MOUNT}/{NAMED}", cacheName="llama")
    assert "mine" in inside(fleet, namespace, "writer", f"ls {MOUNT}").split()
    for name in ("private", "reader"):
        printed = fleet.ended(name, namespace).split()
        assert "mine" not in printed
        assert printed[-1] == "llama"


def test_a_private_volume_takes_no_more_than_its_size_limit(fleet: Fleet, namespace: str) -> None:
    ready(fleet, namespace)
    script = f"dd if=/dev/zero of={MOUNT}/big bs=1M count=3 || wc -c < {MOUNT}/big"
    fleet.pod("writer", namespace, script, **PRIVATE, cacheName="llama", sizeLimit="2Mi")
    printed = fleet.ended("writer", namespace)
    assert "No space left on device" in printed
    assert 1 << 20 <= int(printed.split()[-1]) <= 2 << 20


def test_a_private_volume_leaves_nothing_but_the_shared_tree(fleet: Fleet, namespace: str) -> None:
    entry = ready(fleet, namespace)
    before = tree(entry)
    given = volume(PRIVATE | {"cacheName": "llama", "mountPath": MOUNT})
    running(fleet, pod("writer", namespace, [container(f"echo mine > {MOUNT}/mine; {FOREVER}")], [given]))
    (record,) = recorded(fleet, namespace)
    assert [found.mark.owner for found in mounted(fleet)] == [record.volume_id]
    shared = layout(fleet).relocated_in_memory(record.digest)
    prepared = tree(shared)
    delete(fleet, namespace, "writer")
    assert left(fleet) == []
    assert tree(shared) == prepared
    assert tree(entry) == before


def test_a_volume_that_started_empty_stays_empty_when_its_cache_is_ready(fleet: Fleet, namespace: str) -> None:
    given = volume({"cacheName": "llama", "ifUnavailable": "empty"})
    running(fleet, pod("early", namespace, [container(FOREVER, security=NOT_ROOT)], [given]))
    assert inside(fleet, namespace, "early", f"ls -A {MOUNT}") == ""
    (record,) = recorded(fleet, namespace)
    assert record.digest == ""
    assert f"GKMCache {namespace}/llama is not known on {fleet.cluster.node_name}" in record.empty_because
    ready(fleet, namespace)
    assert inside(fleet, namespace, "early", f"touch {MOUNT}/mine; ls -A {MOUNT}") == "mine\n"
    fleet.cluster.apply(pod("late", namespace, [container(f"cat {MOUNT}/{NAMED}")], [given]))
    assert fleet.ended("late", namespace) == "llama"
    assert record in recorded(fleet, namespace)


def test_what_a_pod_added_is_captured_when_it_goes(fleet: Fleet, namespace: str) -> None:
    ready(fleet, namespace)
    given = volume(PRIVATE | {"cacheName": "llama", "capture": "true"})
    script = f"mkdir {MOUNT}/k; seq 1 500000 > {MOUNT}/k/new; echo x > {KERNEL}/more; ln -s /etc {MOUNT}/etc; {FOREVER}"
    running(fleet, pod("compiler", namespace, [container(script)], [given]))
    fleet.until(lambda: "etc" in inside(fleet, namespace, "compiler", f"ls {MOUNT}"), "the pod to have written")
    (record,) = recorded(fleet, namespace)
    delete(fleet, namespace, "compiler")
    kept = layout(fleet).captured / record.volume_id
    content = kept / "content"
    files = {
        str(path.relative_to(content)): sha256(path.read_bytes()).hexdigest()
        for path in content.rglob("*")
        if path.is_file()
    }
    numbers = "".join(f"{number}\n" for number in range(1, 500001)).encode()
    kernel = KERNEL.removeprefix(f"{MOUNT}/")
    assert files == {"k/new": sha256(numbers).hexdigest(), f"{kernel}/more": sha256(b"x\n").hexdigest()}
    said = json.loads((kept / "captured.json").read_text())
    assert (said["podName"], said["cacheName"], said["files"]) == ("compiler", "llama", 2)
    assert not [path for path in layout(fleet).captured.iterdir() if path.name.startswith(".")]
